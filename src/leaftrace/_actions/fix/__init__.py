"""`lt.fix`: the fewest rows whose removal or relabelling makes one prediction right."""

from .action import Fix as Fix
from .action import fix as fix
