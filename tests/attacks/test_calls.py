"""Attacks by SQL are refused by name, change nothing, and leave the server's log clean."""

from __future__ import annotations

import pytest

from tests.attacks.calls import ATTACKS, Attack
from tests.attacks.scene import SECRET, Scene, refused


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_an_attack_is_refused_and_leaves_no_trace(scene: Scene, attack: Attack) -> None:
    statement = attack.statement
    if "{{" in statement or any(f"{{{kind}}}" in statement for kind in scene.ids):
        statement = statement.format(**scene.ids)
    with scene.watched():
        error = refused(scene.session(attack.who), statement)
    assert isinstance(error, attack.refused), f"{type(error).__name__}: {error.message}"
    assert error.sqlstate.startswith("MM") and error.message
    assert SECRET not in str(error) and "Traceback" not in error.message
