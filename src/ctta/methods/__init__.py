"""The methods, one file per paper."""

# Written by scripts/method_table.py.
from ctta.methods.asr import ASR
from ctta.methods.bn import BN
from ctta.methods.bnema import BNEMA
from ctta.methods.cmf import CMF
from ctta.methods.cotta import CoTTA
from ctta.methods.deyo import DeYO
from ctta.methods.dmse import DMSE
from ctta.methods.dua import DUA
from ctta.methods.eata import EATA, fisher_from_source
from ctta.methods.lame import LAME
from ctta.methods.law import LAW
from ctta.methods.memo import MEMO
from ctta.methods.note import NOTE
from ctta.methods.obao import OBAO
from ctta.methods.palm import PALM
from ctta.methods.petal import PETAL, Swag, swag_from_source
from ctta.methods.petta import FeatureStatistics, PeTTA, feature_statistics_from_source
from ctta.methods.rdumb import RDumb
from ctta.methods.rmt import RMT
from ctta.methods.roid import ROID
from ctta.methods.rotta import RoTTA
from ctta.methods.rpl import RPL
from ctta.methods.santa import SANTA
from ctta.methods.sar import SAR
from ctta.methods.shot import SHOT
from ctta.methods.source import Source
from ctta.methods.t3a import T3A
from ctta.methods.tent import Tent
from ctta.methods.trio import Trio

__all__ = [
    "ASR",
    "BN",
    "BNEMA",
    "CMF",
    "DMSE",
    "DUA",
    "EATA",
    "LAME",
    "LAW",
    "MEMO",
    "NOTE",
    "OBAO",
    "PALM",
    "PETAL",
    "RMT",
    "ROID",
    "RPL",
    "SANTA",
    "SAR",
    "SHOT",
    "T3A",
    "CoTTA",
    "DeYO",
    "FeatureStatistics",
    "PeTTA",
    "RDumb",
    "RoTTA",
    "Source",
    "Swag",
    "Tent",
    "Trio",
    "feature_statistics_from_source",
    "fisher_from_source",
    "swag_from_source",
]
