"""The methods, one file per paper."""

from ctta.methods.asr import ASR
from ctta.methods.bn import BN
from ctta.methods.cmf import CMF
from ctta.methods.cotta import CoTTA
from ctta.methods.deyo import DeYO
from ctta.methods.dmse import DMSE
from ctta.methods.eata import EATA, fisher_from_source
from ctta.methods.lame import LAME
from ctta.methods.law import LAW
from ctta.methods.palm import PALM
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

__all__ = [
    "ASR",
    "BN",
    "CMF",
    "DMSE",
    "EATA",
    "LAME",
    "LAW",
    "PALM",
    "RMT",
    "ROID",
    "RPL",
    "SANTA",
    "SAR",
    "SHOT",
    "T3A",
    "CoTTA",
    "DeYO",
    "RDumb",
    "RoTTA",
    "Source",
    "Tent",
    "fisher_from_source",
]
