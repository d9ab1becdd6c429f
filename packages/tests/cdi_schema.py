"""cdi_schema.py SCHEMA SPECIFICATION: validates a specification of the Container Device Interface by the schema of its project.

SCHEMA is a folder with schema.json and defs.json. A specification without the path of a mount must be refused, so that a schema that permits
anything is noticed.
"""

import copy
import json
import pathlib
import sys

from jsonschema import Draft7Validator
from referencing import Registry
from referencing.jsonschema import DRAFT7


def errors(validators, specification):
    whole, edits = validators
    found = [*whole.iter_errors(specification)]
    # The schema does not say what the edits of all devices together are.
    found += edits.iter_errors(specification["containerEdits"])
    return [f"{error.json_path}: {error.message}" for error in found]


def main():
    folder = pathlib.Path(sys.argv[1])
    specification = json.loads(pathlib.Path(sys.argv[2]).read_text())
    names = ["schema.json", "defs.json"]
    schemas = {name: json.loads((folder / name).read_text()) for name in names}
    registry = Registry().with_resources((name, DRAFT7.create_resource(schemas[name])) for name in names)
    by = lambda reference: Draft7Validator({"$ref": reference}, registry=registry)
    validators = by("schema.json"), by("defs.json#/definitions/containerEdits")

    found = errors(validators, specification)
    assert not found, found
    assert specification["kind"] == "pagewire.dev/rdma" and len(specification["devices"]) == 3, specification
    broken = copy.deepcopy(specification)
    del broken["containerEdits"]["mounts"][0]["containerPath"]
    assert errors(validators, broken), "a mount without its path is valid"
    del broken["devices"][0]["name"]
    assert len(errors(validators, broken)) > 1, "a device without a name is valid"


main()
