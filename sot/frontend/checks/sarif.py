"""The findings of a run as SARIF 2.1.0, which GitHub's code scanning and editors show at their lines."""
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sot.frontend.checks.limits import Finding, findings
from sot.reports.model import Report
from sot.support.errors import Reason
from sot.support.places import shortened
from sot.support.version import VERSION

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
RECOMPILE = ("RECOMPILE", "a function was recompiled", "keep the value the same, pass it as a tensor, or mark a size "
             "that varies with sot.mark_dynamic")


def sarif(report: Report) -> str:
    """The text of the file."""
    found = [finding for finding in findings(report) if finding.line.line > 0]
    rules = [rule(name) for name in dict.fromkeys(finding.kind for finding in found)]
    driver = {"name": "SOT", "version": VERSION, "rules": rules}
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [
        {"tool": {"driver": driver}, "columnKind": "utf16CodeUnits", "results": [*map(result, found)]}]}, indent=1)


def rule(name: str) -> dict[str, Any]:
    _, text, hint = RECOMPILE if name == RECOMPILE[0] else (name, Reason[name].value.message, Reason[name].hint)
    return {"id": name, "shortDescription": {"text": text.replace("{}", "…").strip()}, "help": {"text": hint}}


def result(finding: Finding) -> dict[str, Any]:
    file = shortened(finding.line.file)
    uri = Path(file).as_uri() if Path(file).is_absolute() else Path(file).as_posix()
    return {"ruleId": finding.kind, "level": "error" if finding.kind == Reason.INTERNAL.name else "warning",
            "message": {"text": finding.message}, "properties": {"seconds": finding.seconds},
            "locations": [{"physicalLocation": {"artifactLocation": {"uri": uri},
                                                "region": {"startLine": finding.line.line}}}]}
