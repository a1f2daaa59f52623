"""The methods, one file per paper. Written by scripts/method_table.py."""

from ctta.methods.bn import BN
from ctta.methods.cotta import CoTTA
from ctta.methods.deyo import DeYO
from ctta.methods.dmse import DMSE
from ctta.methods.eata import EATA, fisher_from_source
from ctta.methods.rdumb import RDumb
from ctta.methods.rmt import RMT
from ctta.methods.roid import ROID
from ctta.methods.rotta import RoTTA
from ctta.methods.santa import SANTA
from ctta.methods.sar import SAR
from ctta.methods.source import Source
from ctta.methods.tent import Tent

__all__ = [
    "BN",
    "DMSE",
    "EATA",
    "RMT",
    "ROID",
    "SANTA",
    "SAR",
    "CoTTA",
    "DeYO",
    "RDumb",
    "RoTTA",
    "Source",
    "Tent",
    "fisher_from_source",
]
