import sys
from types import ModuleType

import pytest

from accredit.adapters import arrivals
from accredit.adapters.arrivals import when_imported


@pytest.fixture
def package(tmp_path, monkeypatch):
    (tmp_path / "late_module.py").write_text("value = 1\n")
    (tmp_path / "late_action.py").write_text(
        "def act(module): module.value += 1\ndef fail(module): module.no_such_name\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setattr(arrivals, "_WAITING", {})
    yield
    for name in ("late_module", "late_action"):
        sys.modules.pop(name, None)


def test_the_action_follows_the_first_import(package):
    when_imported("late_module", "late_action:act")
    assert "late_module" not in sys.modules
    assert "late_action" not in sys.modules
    import late_module

    assert 2 == late_module.value
    assert "SourceFileLoader" == type(late_module.__spec__.loader).__name__


def test_a_module_that_is_there_is_acted_on_at_once(package):
    import late_module

    when_imported("late_module", "late_action:act")
    assert 2 == late_module.value


def test_asking_twice_acts_once(package):
    when_imported("late_module", "late_action:act")
    when_imported("late_module", "late_action:act")
    import late_module

    assert 2 == late_module.value


def test_a_failing_action_leaves_the_module_and_says_so(package, caplog):
    when_imported("late_module", "late_action:fail")
    import late_module

    assert 1 == late_module.value
    assert "leaves late_module as it is" in caplog.text
    assert isinstance(late_module, ModuleType)


def test_the_plugin_imports_nothing_heavy():
    import subprocess

    code = (
        "import sys, accredit.adapters.verl_plugin; "
        "print('numpy' in sys.modules, 'accredit.data' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "False False" == done.stdout.strip()


def test_looking_a_module_up_does_not_use_the_action_up(package):
    from importlib.util import find_spec

    when_imported("late_module", "late_action:act")
    assert "value = 1" in find_spec("late_module").loader.get_source("late_module")
    import late_module

    assert 2 == late_module.value
