"""Says whether files are lists of what is in a binary (SBOM), by the schema of CycloneDX."""
import pathlib
import sys

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

for name in sys.argv[1:]:
    fault = JsonStrictValidator(SchemaVersion.V1_6).validate_str(pathlib.Path(name).read_text())
    if fault is not None:
        sys.exit(f"{name}: {fault!r}")
