"""The command line: exit codes, one line a problem, nothing half-written, quick help."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from forerun.core import slices
from forerun.core.catalog import demos
from forerun.core.cli.main import forerun_command, run
from forerun.core.scenario.text import read_document
from forerun.core.study.executors.interrupts import blocked

SERVING = next(demo.scenario for demo in demos() if demo.domain == "serving")
ENERGY = next(demo.scenario for demo in demos() if demo.domain == "energy")
#: 130; or, as a shell says the same, by the signal: CPython ends itself so where the interrupt came while text was executed
#: (a dataclass being made), whatever was done about it since
INTERRUPTED = {130, -signal.SIGINT}
SMALL = ["--set", "trace.queries=2000"]


def verbs() -> list[str]:
    import click

    return forerun_command.list_commands(click.Context(forerun_command))  # type: ignore[attr-defined]


@pytest.mark.parametrize("verb", verbs())
def test_every_verb_tells_what_it_does(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([verb, "--help"]) == 0
    assert "Usage: forerun" in capsys.readouterr().out


def test_commands_lie_in_several_packages_and_no_two_share_a_name() -> None:
    folders = [slices.folder("core/cli"), *(slices.folder(name) / "verbs" for name in slices.slices())]
    files = [path for folder in folders for path in folder.glob("[!_]*.py") if path.name != "main.py"]
    assert len(files) == len(verbs()) and slices.verbs()["reproduce"].startswith("forerun.replication.")


def test_help_imports_no_large_library() -> None:
    """The start-up time of `forerun --help` is a benchmark; what makes it slow is an import, which this test finds."""
    show = "import sys; from forerun.__main__ import main\ntry: main()\nfinally: print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", show, "--help"], capture_output=True, text=True, check=True)
    large = {
        "numpy",
        "polars",
        "numba",
        "msgspec",
        "yaml",
        "altair",
        "scipy",
        "rich.live",
        "sqlite3",
        "asyncio",
    }
    assert "Usage: forerun" in done.stdout and not large & set(done.stderr.split())


def test_json_is_json_and_results_go_to_stdout(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["simulate", str(SERVING), *SMALL, "--json"]) == 0
    data = json.loads(capfd.readouterr().out)
    assert data["domain"] == "serving" and data["summary"] and data["why"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["simulat"], "did you mean 'simulate'"),
        (["simulate"], "Missing argument"),
        (["simulate", "nowhere.yaml"], "no such file"),
        (["simulate", str(SERVING), "--set", "slo=300W"], "is a power"),
        (["simulate", str(SERVING), "--set", "sloo_ms=3"], "did you mean 'slo_ms'"),
        (["simulate", str(SERVING), "--seed", "-1"], "-1"),
        (["simulate", str(SERVING), "--colour"], "No such option"),
        (["schema", "servng"], "did you mean 'serving'"),
        (["policies", "nowhere"], "no domain named"),
        (["reproduce", "inferline"], "no reproduction named"),
        (["reproduce"], "name what to reproduce"),
        (["report", "nowhere"], "no such run directory"),
        (["compare", str(SERVING), "--with", "x"], "write a variant as"),
        (["study", str(SERVING)], "'base' is missing"),
        (["demo", "nowhere"], "no demonstration named"),
    ],
)
def test_bad_usage_is_exit_code_2_and_lines_without_a_traceback(
    words: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(words) == 2
    shown = capsys.readouterr()
    assert shown.out == "" and message in shown.err and "Traceback" not in shown.err
    assert list(tmp_path.iterdir()) == []


def test_what_a_room_finds_wrong_is_told_with_file_and_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    text = SERVING.read_text()
    (tmp_path / "mine.yaml").write_text(text.replace("ResNet: {hardware: V100", "ResNet: {hardware: H100"))
    line = next(i for i, one in enumerate(text.splitlines(), start=1) if "ResNet: {hardware" in one)
    monkeypatch.chdir(tmp_path)
    assert run(["simulate", "mine.yaml"]) == 2
    told = capfd.readouterr().err
    assert f"mine.yaml:{line}: at $.configuration.ResNet" in told
    assert "did you mean 'V100'" in told and "Traceback" not in told


def test_a_run_is_kept_and_never_overwritten(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "run"
    command = ["simulate", str(SERVING), *SMALL, "-o", str(folder)]
    assert run(command) == 0 and "\x1b[" not in capfd.readouterr().out, "colours outside a terminal"
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert run(command) == 2 and "already holds a run" in capfd.readouterr().err
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.parametrize("after_s", [0.3, 0.8, 1.2])
def test_ctrl_c_leaves_no_partial_run(tmp_path: Path, after_s: float) -> None:
    command = [
        sys.executable,
        "-m",
        "forerun",
        "simulate",
        str(SERVING),
        "--set",
        "trace.queries=30000000",
        "--set",
        "record=counts",
    ]
    process = subprocess.Popen(
        [*command, "-o", str(tmp_path / "run")], stderr=subprocess.PIPE, stdout=subprocess.PIPE
    )
    time.sleep(after_s)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode in INTERRUPTED
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("dropped", ["called_back(1)", "msgspec.convert(1, declared)"])
def test_ctrl_c_that_c_code_drops_comes_again(dropped: str) -> None:
    """The first with a message, which is not shown for an interrupt; the second without a word."""
    code = (
        "import ctypes, msgspec, signal, sys, time\n"
        "from typing import Annotated\n"
        "@ctypes.CFUNCTYPE(None, ctypes.c_int)\n"
        "def called_back(interrupted):\n"
        "    if not interrupted:\n"
        "        raise ValueError('seen')\n"
        "    signal.raise_signal(signal.SIGINT)\n"
        "class Hashed:\n"
        "    sends = False\n"
        "    def __hash__(self):\n"
        "        if Hashed.sends:\n"
        "            signal.raise_signal(signal.SIGINT)\n"
        "        return 1\n"
        "declared = Annotated[int, Hashed()]\n"
        "import forerun.core.cli.main\n"
        "def run():\n"
        "    called_back(0)\n"
        "    Hashed.sends = True\n"
        f"    {dropped}\n"
        "    Hashed.sends = False\n"
        "    print('dropped', flush=True)\n"
        "    time.sleep(30)\n"
        "forerun.core.cli.main.run = run\n"
        "from forerun.__main__ import main\n"
        "main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=20
    )
    assert (done.returncode, done.stdout) == (130, "dropped\n")
    assert "ValueError: seen" in done.stderr and "KeyboardInterrupt" not in done.stderr
    assert done.stderr.endswith("forerun: interrupted; nothing half-written was left\n")


def test_ctrl_c_that_is_caught_does_not_come_again() -> None:
    code = (
        "import contextlib, signal, sys, time\n"
        "import forerun.core.cli.main\n"
        "def two():\n"
        "    signal.raise_signal(signal.SIGINT)\n"
        "def run():\n"
        "    try:\n"
        "        two()\n"
        "    except KeyboardInterrupt:\n"
        "        pass\n"
        "    with contextlib.suppress(KeyboardInterrupt):\n"
        "        two()\n"
        "    time.sleep(0.3)\n"
        "    return 0\n"
        "forerun.core.cli.main.run = run\n"
        "from forerun.__main__ import main\n"
        "main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=20
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_ctrl_c_while_the_command_line_is_imported_is_one_line() -> None:
    code = (
        "import sys\n"
        "class Interrupts:\n"
        "    def find_spec(self, name, *rest):\n"
        "        if name == 'click':\n"
        "            raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupts())\n"
        "from forerun.__main__ import main\n"
        "main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "forerun: interrupted; nothing half-written was left\n")


@pytest.mark.parametrize("after_s", [0.0, 0.2, 0.4])
def test_ctrl_c_reaches_processes_and_they_say_nothing(tmp_path: Path, after_s: float) -> None:
    """To the whole group, as a terminal sends it: one process a demonstration is about to start or at work."""
    command = [sys.executable, "-m", "forerun", "demo", "-q", "-o", str(tmp_path / "page.html")]
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    # Before a command's first imports there is nothing that could answer; how long that takes depends on the machine.
    while "msgspec" not in Path(f"/proc/{process.pid}/maps").read_text():
        assert process.poll() is None
        time.sleep(0.02)
    time.sleep(after_s)
    os.killpg(process.pid, signal.SIGINT)
    _, told = process.communicate(timeout=60)
    assert process.returncode in INTERRUPTED
    assert told.strip() == "forerun: interrupted; nothing half-written was left"
    assert list(tmp_path.iterdir()) == []


def test_interrupts_wait_while_processes_are_started() -> None:
    started = ""
    with pytest.raises(KeyboardInterrupt), blocked():
        signal.raise_signal(signal.SIGINT)
        ask = "import signal; print(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, []))"
        started = subprocess.run(
            [sys.executable, "-c", ask], capture_output=True, text=True, check=True
        ).stdout
    assert started == "True\n"
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_reader_that_goes_away_is_no_error() -> None:
    command = f"{sys.executable} -m forerun schema serving | head -1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "Traceback" not in done.stderr


def test_a_read_only_installation_without_a_home_works(tmp_path: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("needs the right to run as nobody")
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "TMPDIR": str(tmp_path)}
    tmp_path.chmod(0o777)
    code = (
        "import os; os.setgroups([]); os.setgid(65534); os.setuid(65534); os.umask(0o022)\n"
        "from forerun.core.kernels.jit import cache_root\nprint(cache_root())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    if "PermissionError" in done.stderr or "Permission denied" in done.stderr or "No module" in done.stderr:
        pytest.skip("this Python cannot be read by nobody here")
    assert done.returncode == 0 and done.stdout.strip().startswith(str(tmp_path)), done.stderr


def test_tables_break_between_words_and_never_within_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    from forerun.core.cli._show import print_table

    rows = [[1_234_567.0] * 20 + ["a few words to fold " * 9]]
    print_table(["measured power"] * 20 + ["a name"], rows, title="Power", about="in W")
    title, head, *body = capsys.readouterr().out.splitlines()
    assert title == "Power" and body[-1] == "in W"
    assert "measured" in head and len(head) > 120
    assert body[1].split()[:20] == ["1,234,567"] * 20

    print_table(["n", "why"], [[1.0, "a few words to fold " * 9]], title="Reasons", about="n: how many")
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 120


def test_the_next_command_asks_about_the_same_world(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """With what `--set` and `--seed` changed, quoted for a shell; and it runs."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my jobs.yaml").write_text(
        "domain: cluster\ntrace: {generate: {jobs: 9, mean_gap_s: 60}}\n"
        "machines: {nodes: [{count: 1, gpus: 16}]}\npolicy: fifo\n"
    )
    changes = ["--set", "trace.generate={jobs: 5, mean_gap_s: 60}", "--seed", "3"]
    told = {}
    for verb in ("simulate", "compare"):
        more = ["--policy", "srtf", "--policy", "fifo", "--seeds", "2"] if verb == "compare" else []
        assert run([verb, "my jobs.yaml", *changes, *more]) == 0
        told[verb] = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("next: "))
    for line in told.values():
        words = shlex.split(line)
        assert words[3] == "my jobs.yaml" and words[4:6] == changes[:2] and "--seed 3" in line
    assert run(shlex.split(told["compare"].removeprefix("next: forerun "))) == 0
    assert json.loads((next((tmp_path / "runs").iterdir()) / "scenario.json").read_text())["seed"] == 3


def test_the_next_command_sets_nothing_twice(capsys: pytest.CaptureFixture[str]) -> None:
    """A setting that the next step sets anew is not said before it; the others stay."""
    given = ["--set", "trace.queries=500", "--set", "configuration.ResNet.replicas=2", "--set", "slo=9s"]
    assert run(["simulate", str(SERVING), *given]) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("next: "))
    assert line.count("ResNet.replicas=") == 1 and "--set trace.queries=500 --set slo=9s --set" in line


def test_explaining_a_scenario_file_tells_what_is_wanted(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", str(SERVING)]) == 2
    assert "is a file, not a run directory (`forerun simulate -o` writes one)" in capsys.readouterr().err


@pytest.mark.skipif(sys.platform != "linux", reason="closes streams by the shell, and wants /dev/full")
@pytest.mark.parametrize(
    ("redirection", "code", "told"),
    [
        (">&-", 0, ""),  # as a daemon starts it
        ("<&- >&- 2>&-", 0, ""),
        (">/dev/full", 2, "forerun: standard output: No space left on device\n"),
    ],
)
def test_streams_that_are_closed_or_full_are_no_bug(redirection: str, code: int, told: str) -> None:
    words = f"{shlex.quote(sys.executable)} -m forerun policies energy {redirection}"
    ended = subprocess.run(["sh", "-c", words], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (code, told)


def test_what_no_file_can_hold_is_told_in_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    """A byte that is no UTF-8, as the shell hands it over; more memory than any machine has."""
    assert run(["simulate", str(SERVING), "--set", "trace.queries=\udcff"]) == 2
    assert capsys.readouterr().err == "forerun: --set trace.queries=?: is not UTF-8\n"
    from forerun.core.cli.simulate import command

    for raised, told in [
        (MemoryError("Unable to allocate 9 TiB"), "not enough memory Unable to allocate 9 TiB; ask for less"),
        (UnicodeEncodeError("ascii", "ü", 0, 1, "no"), "cannot be written as ascii; a UTF-8 locale"),
        (
            UnicodeEncodeError("utf-8", "a\udcff", 1, 2, "no"),
            r"'\udcff' cannot be written as utf-8; it stands for",
        ),
        (FileNotFoundError(2, "No such file or directory"), "forerun: No such file or directory"),
    ]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(command, "callback", _raising(raised))
            assert run(["simulate", str(SERVING)]) == 2
        assert told in capsys.readouterr().err


def parameters() -> list[tuple[tuple[str, ...], Any]]:
    """The words of every command, with each of its parameters."""
    import click

    found: list[tuple[tuple[str, ...], Any]] = []

    def visit(command: click.Command, words: tuple[str, ...]) -> None:
        if isinstance(command, click.Group):
            context = click.Context(command)
            names = command.commands if hasattr(command, "default") else command.list_commands(context)
            for name in names:
                child = command.get_command(context, name)
                assert child is not None
                visit(child, (*words, name))
        found.extend((words, parameter) for parameter in command.params)

    visit(forerun_command, ())
    return found


def written() -> list[tuple[tuple[str, ...], str]]:
    """Every command with an option that names a file to write, and the option."""
    from forerun.core.cli._inputs import OUTPUTS

    return [
        (words, option)
        for words, parameter in parameters()
        if parameter.metavar != "DIR"  # where nothing is replaced
        for option in parameter.opts
        if option in OUTPUTS
    ]


def ranges() -> list[tuple[tuple[str, ...], str]]:
    """Every command with an option that takes a number in a range, and the option."""
    import click

    return [
        (words, parameter.opts[0])
        for words, parameter in parameters()
        if isinstance(parameter.type, click.FloatRange)
    ]


def asked(words: tuple[str, ...], option: str) -> tuple[Any, list[str]]:
    """A command, and all that it requires except what the option names."""
    import click

    command: Any = forerun_command
    for word in words:
        command = command.get_command(click.Context(command), word)
    if not any(isinstance(parameter, click.Argument) for parameter in command.params):
        pytest.skip("reads no file that the command line names")
    given = []
    for parameter in command.params:
        if isinstance(parameter, click.Argument):
            choices = getattr(parameter.type, "choices", None)
            given.append(choices[0] if choices else "in/scenario.yaml")
        elif parameter.required and option not in parameter.opts:
            given += [parameter.opts[0], "1"]
    return command, given


every_output = pytest.mark.parametrize(
    ("words", "option"), written(), ids=lambda value: "-".join(value) if isinstance(value, tuple) else value
)


@every_output
def test_no_command_replaces_a_document_of_another_program(
    words: tuple[str, ...],
    option: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Nor one that a person wrote: before anything is computed, whatever comes of it."""
    monkeypatch.chdir(tmp_path)
    for name, text in (("notes.yaml", "# costs\ncost: {a_ms: 1}\n"), ("package.json", '{"name": "forerun"}')):
        Path(name).write_text(text)
        assert run([*words, *asked(words, option)[1], option, name]) == 2
        assert "forerun did not write it" in " ".join(capsys.readouterr().err.split())
        assert Path(name).read_text() == text


def test_a_description_of_ours_is_replaced(tmp_path: Path) -> None:
    out = tmp_path / "jobs.yaml"
    assert run(["init", "cluster", str(tmp_path / "site")]) == 0
    jobs = tmp_path / "site" / "jobs.csv"
    out.write_text("")
    for seed in ("1", "2"):
        assert run(["trace", "fit", "cluster", str(jobs), "--seed", seed, "-o", str(out)]) == 0
    assert run(["trace", "generate", "cluster", str(out), "-o", str(tmp_path / "t.csv")]) == 0


@every_output
def test_no_command_writes_over_what_it_reads(
    words: tuple[str, ...],
    option: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Whatever reads a scenario: neither it, nor its trace, nor what a file named in it names, under any spelling."""
    (tmp_path / "in").mkdir()
    files = {
        name: tmp_path / "in" / name
        for name in ("scenario.yaml", "jobs.csv", "fleet.yaml", "spare.csv", "log.csv")
    }
    for path in files.values():
        path.write_text("id\n")
    files["scenario.yaml"].write_text("{domain: cluster, trace: {file: jobs.csv}, fleet: fleet.yaml}")
    files["fleet.yaml"].write_text("fleet: {file: spare.csv}")
    (tmp_path / "alias").symlink_to(tmp_path / "in", target_is_directory=True)
    os.link(files["jobs.csv"], tmp_path / "hard.csv")
    before = {name: path.read_bytes() for name, path in files.items()}
    monkeypatch.chdir(tmp_path)
    for target in (*files, "alias/jobs.csv", "hard.csv"):
        out = target if "/" in target or target == "hard.csv" else f"in/{target}"
        command, given = asked(words, option)
        given += [option, out]
        if target == "log.csv":
            if "--set" not in {opt for p in command.params for opt in p.opts}:
                continue
            given += ["--set", "trace.file=in/log.csv"]
        assert run([*words, *given]) == 2, (words, given)
        assert "is read by this command" in " ".join(capsys.readouterr().err.split()), (words, given)
    assert {name: path.read_bytes() for name, path in files.items()} == before


@pytest.mark.skipif(sys.platform == "win32", reason="has no such signal")
def test_a_request_to_end_leaves_nothing_half_written(tmp_path: Path) -> None:
    """SIGTERM in the middle of a save; the exit code is the signal's own."""
    code = (
        "import os, signal, sys; from forerun.core.result.tables import Table; from forerun.__main__ import main\n"
        "Table.write_parquet = lambda *given: os.kill(os.getpid(), signal.SIGTERM)\n"
        f"sys.argv = ['forerun', 'simulate', {str(ENERGY)!r}, '-q', '--set', 'trials=0', '-o', 'run']\nmain()"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stderr.strip()) == (
        143,
        "forerun: interrupted; nothing half-written was left",
    )
    assert list(tmp_path.iterdir()) == []


def test_a_starter_that_cannot_be_written_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*given: object, **named: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "open", full)
    assert run(["init", "energy", str(tmp_path / "a" / "b")]) == 2
    assert list(tmp_path.iterdir()) == []


def test_many_problems_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = "".join(f"wrong_{number}: 1\n" for number in range(50))
    (tmp_path / "s.yaml").write_text(ENERGY.read_text(encoding="utf-8") + wrong)
    assert run(["check", str(tmp_path / "s.yaml")]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 21 and lines[-1].startswith("forerun: and ") and lines[-1].endswith(" more")


def test_a_page_may_lie_in_the_run_that_it_shows(tmp_path: Path) -> None:
    """What a run's folder has besides the run is nobody's input; the run's own files are."""
    assert run(["simulate", str(ENERGY), "--set", "trials=0", "-q", "-o", str(tmp_path / "run")]) == 0
    for _ in range(2):
        assert run(["report", str(tmp_path / "run"), "-o", str(tmp_path / "run" / "page.html")]) == 0
    assert run(["report", str(tmp_path / "run"), "-o", str(tmp_path / "run" / "summary.json")]) == 2


def test_a_fault_of_our_own_is_not_explained_by_the_locale() -> None:
    """Python 3.13 raises this error where a docstring that it compiles has half a character."""
    from forerun.core.cli.simulate import command

    for raised in (UnicodeEncodeError("utf-8", "\ud800", 0, 1, "no"), ImportError("no"), EOFError()):
        with pytest.MonkeyPatch.context() as patch, pytest.raises(type(raised)):
            patch.setattr(command, "callback", _raising(raised))
            run(["simulate", str(SERVING)])


def _raising(error: BaseException) -> Callable[..., None]:
    def callback(**options: object) -> None:
        raise error

    return callback


@pytest.mark.skipif(sys.platform != "linux", reason="locales are named otherwise elsewhere")
@pytest.mark.parametrize(
    "settings", [{"PYTHONUTF8": "0", "LC_ALL": "POSIX"}, {"PYTHONIOENCODING": "latin-1"}]
)
def test_a_locale_without_letters_ends_no_run_in_an_error(settings: dict[str, str], tmp_path: Path) -> None:
    """What an encoding cannot write is escaped; JSON stays JSON."""
    scenario = tmp_path / "scenario.yaml"
    text = SERVING.read_text(encoding="utf-8").replace("name: KSVM", "name: KΩ→, model: KSVM")
    scenario.write_text(text.replace("  KSVM:", "  KΩ→:"), encoding="utf-8")
    words = ["forerun", "simulate", str(scenario), *SMALL]
    code = (
        "import sys; from forerun.__main__ import main\n"
        f"for more in (['-o', {str(tmp_path / 'run')!r}], ['--json']):\n"
        f"    sys.argv = [*{words!r}, *more]\n"
        "    try: main()\n"
        "    except SystemExit as end: assert end.code == 0, end.code"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, env={**os.environ, **settings}, check=False
    )
    told, brace, data = ended.stdout.partition(b"\n{")
    assert (ended.returncode, ended.stderr) == (0, b"") and b"why:" in told
    assert json.loads(brace + data)["summary"]


def test_no_color_means_no_bold_either(monkeypatch: pytest.MonkeyPatch) -> None:
    from forerun.core.cli._show import terminal

    monkeypatch.setenv("FORCE_COLOR", "1")
    for value, styled in (("", True), ("1", False)):
        monkeypatch.setenv("NO_COLOR", value)
        screen = terminal()
        with screen.capture() as shown:
            screen.print("text", style="bold green")
        assert ("\x1b[" in shown.get()) == styled


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("plan.json", b'{"format": 1,\n"plan": }', ":2: is not JSON: Expecting value at column 9"),
        ("latin.json", b'{"format":\n"\xe9"}', ":2: is not JSON: byte 12 is not UTF-8"),
        (
            "notes.txt",
            b"three replicas",
            ":1: is not JSON: Expecting value at column 1; a scenario ends in .yaml",
        ),
        ("list.json", b"[1, 2]", ": contains a list; plans, scenarios and measurements are JSON objects"),
        ("scenario.json", b'{"domain": "energy",\n"gpu": 1}', ":2: at $.gpu"),
        ("other.json", b'{"a": 1}', ": is no plan: its format is None"),
    ],
)
def test_check_says_what_is_wrong_with_any_file(
    name: str, content: bytes, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    assert run(["check", str(path)]) == 2
    assert f"forerun: {path}{told}" in capsys.readouterr().err


def test_check_reads_scenarios_in_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "scenario.json"
    path.write_text(json.dumps({**read_document(SERVING).data}))
    assert run(["check", str(path)]) == 0
    assert "a scenario of the serving domain" in capsys.readouterr().out


@pytest.mark.skipif(sys.platform != "linux", reason="wants /dev/full")
def test_a_full_disk_under_a_table_is_named(tmp_path: Path) -> None:
    """Parquet is written by a library with errors of its own."""
    import polars

    from forerun.core.atomic_write import write_file
    from forerun.core.errors import StoreError

    def write(_: Path) -> None:
        with Path("/dev/full").open("wb") as full:
            polars.DataFrame({"a": list(range(100_000))}).write_parquet(full)

    with pytest.raises(StoreError, match=r"t\.parquet: cannot be written: .*No space left on device"):
        write_file(tmp_path / "t.parquet", write)


def test_several_options_take_a_range() -> None:
    assert {(("compare",), "--precision"), (("live", "forecast"), "--level"), (("store",), "--sigma")} <= {
        *ranges()
    }


@pytest.mark.parametrize(
    ("words", "option"), ranges(), ids=lambda one: " ".join([one] if isinstance(one, str) else one)
)
def test_nan_is_in_no_range(words: tuple[str, ...], option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*words, option, "nan"]) == 2
    assert "nan is not a finite number" in capsys.readouterr().err
    assert run([*words, option, "inf"]) == 2
    assert "inf is not " in capsys.readouterr().err
