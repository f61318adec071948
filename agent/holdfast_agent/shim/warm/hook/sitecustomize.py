"""Runs in a rank's Python before its program, where the job asks for warm starts: learns imports, or parks ranks.

The shim puts this folder first on PYTHONPATH and says in HOLDFAST_WARM what to do; in any other process this file only
steps aside. The program's own Python, 3.8 or later, runs it, so it imports nothing of Holdfast's.

*learn*: the names of the modules that are imported go into a shared memory that the shim reads, with the place of each
that is no part of a package, and between them ``=NAME`` for each variable that has changed by then.
*park*: imports those modules, forks one process for each rank and ends. Each waits at its socket for its environment,
directory and descriptors, says that it has them, waits for the last word, and returns from here: the interpreter
itself goes on to the program, so argv, ``__main__``, exits and tracebacks are its own. What goes wrong before that ends
the process: the program never runs in one that was not released.

Longer than 400 lines because it has to be one file: a second one would be a module of ours in the program's own
Python, under a name that the program may use itself, and found only on a path from which this file steps aside.
"""

from __future__ import annotations

import os
import stat
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

PARKED = b"holdfast-warm"  # what `ps -e` and `top` call a process until it is released
SPACE = "HOLDFAST_WARM_SPACE"  # of the environment at the start, for the variables that come at the release
HEADER = 32  # of the shared memory: the pid and the length of the names, each in 16 bytes
FAILED = 70
WELL = b"+"  # a look in a fork has found nothing: one that ends early does not say it
PR_SET_PDEATHSIG = 1
REALTIME_COARSE = 5  # the clock of files' times, which lags behind the precise one by some milliseconds
MEET = b"HOLDFAST_MEET"  # among what comes at the release: not before the gang's first rank listens
MEET_S, LOOK_S, LONGEST_LOOK_S = 5.0, 0.005, 0.1
LISTENS = b"0A"
WHOLE = "the whole environment"
ABC: str = os._Environ.get.__code__.co_filename  # of the mappings in the standard library
NATIVE = ("OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "GOTO_", "BLIS_", "HDF5_", "TF_", "XLA_", "GRPC_")
"""Variables that a shared library reads when it is loaded, unseen by Python."""
ALIKE = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
"""Devices of which it is no matter whether ranks share one."""
CALLS = {
    "getpid": "asks for its pid",
    "getppid": "asks for its parent's pid",
    "getpgrp": "asks for its process group",
    "getpgid": "asks for its process group",
    "getsid": "asks for its session",
    "get_native_id": "asks for its thread's number",
    "nice": "changes its priority",
    "setpriority": "changes its priority",
    "getpriority": "asks for its priority",
    "sched_setscheduler": "changes its priority",
    "sched_getscheduler": "asks for its priority",
}
"""Functions that have another answer in each rank, or whose effect the release undoes."""
COUNTS = {"sched_getaffinity": "counts its cores", "process_cpu_count": "counts its cores"}
DRAWING = ("random", "numpy.random", "torch")
"""Modules that draw random numbers, which each rank draws for itself."""


def _step_aside() -> list[str]:
    """Leave PYTHONPATH, sys.path and the variables as if this file had never been there. Returns the order."""
    here = os.path.dirname(os.path.abspath(__file__))
    order = os.environ.pop("HOLDFAST_WARM", "")
    first, colon, rest = os.environ.get("PYTHONPATH", "").partition(":")
    if first == here:
        if colon:
            os.environ["PYTHONPATH"] = rest
        else:
            del os.environ["PYTHONPATH"]
    if here in sys.path:
        sys.path.remove(here)
    sys.path_importer_cache.pop(here, None)
    pid, _, order = order.partition(" ")
    return order.split() if pid == str(os.getpid()) else []


def _run_hidden() -> bool:
    """Run the sitecustomize that this one hides; False where there is none."""
    hidden = sys.modules.pop("sitecustomize", None)
    try:
        import sitecustomize  # type: ignore[import-not-found]  # noqa: F401

        return True
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
        if hidden is not None:
            sys.modules["sitecustomize"] = hidden
        return False


def _found(name: str) -> str:
    """The place of a module that is no part of a package, as an import finds it now; empty for built-in ones."""
    if name in sys.builtin_module_names or sys.modules["_imp"].is_frozen(name):
        return ""
    finder: Any = sys.modules["_frozen_importlib_external"]
    return _place(finder.PathFinder.find_spec(name))


def _place(spec: Any) -> str:
    """The file of a module, or all folders of a package without one."""
    places = [spec.origin] if spec and spec.origin else list((spec and spec.submodule_search_locations) or ())
    return ":".join(os.path.realpath(place) for place in places)


class _Learner:
    """First on sys.meta_path; finds nothing and keeps what is imported. ``find_spec`` of importlib imports nothing."""

    def __init__(self, fd: int) -> None:
        import mmap

        size = os.fstat(fd).st_size
        untracked: Any = {"trackfd": False} if sys.version_info >= (3, 13) else {}
        self.memory = mmap.mmap(fd, size, **untracked)
        os.close(fd)
        self.pid = os.getpid()
        self.end = HEADER
        self.size = size
        self.memory[:16] = b"%-16d" % self.pid
        self.environ = self.variables()

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Keep a name; never raises."""
        try:
            if sys._getframe(2).f_code.co_name != "_find_and_load_unlocked" or os.getpid() != self.pid:
                return
            now = self.variables()
            if now != self.environ:
                before, self.environ = self.environ, now
                for each in {*before, *now}:
                    if before.get(each) != now.get(each):
                        self.keep("=" + os.fsdecode(each))
            self.keep(name if "." in name else f"{name}\t{_found(name)}")
        except Exception:  # noqa: BLE001 - the program must not notice
            pass

    @staticmethod
    def variables() -> dict[Any, Any]:
        """The environment, as Python holds it: decoding it at each import would take longer than all the rest."""
        return dict(getattr(os.environ, "_data", os.environ))

    def keep(self, line: str) -> None:
        """Add a line, if there is room for it."""
        data = os.fsencode(line.replace("\n", "?")) + b"\n"
        start, end = self.end, self.end + len(data)
        if end <= self.size:
            self.end = end
            self.memory[start:end] = data
            self.memory[16:HEADER] = b"%-16d" % (end - HEADER)


class _Unsafe(Exception):
    """A package can't be preloaded, and why."""


class _Watched(os._Environ):  # type: ignore[type-arg]
    """The environment while modules are preloaded: keeps which of the names that differ for each rank are read, or that
    the program sets before.
    """

    varying: frozenset[str] = frozenset()
    contract: tuple[str, ...] = ()
    preset: dict[str, str | None] = {}  # noqa: RUF012 - by name, the value that the program has replaced
    read: set[str] = set()  # noqa: RUF012 - there is one environment

    def __getitem__(self, name: Any) -> Any:
        text = os.fsdecode(name) if isinstance(name, bytes) else name
        if text in self.varying or text in self.unset():
            self.read.add(text)
        try:
            return super().__getitem__(name)
        except KeyError:
            if text.startswith(self.contract):
                self.read.add(text)
            raise

    def unset(self) -> set[str]:
        """Names that have another value in the program, unless an import has set them here, too."""
        now = self.__dict__["_data"]
        began = {name: value if value is None else os.fsencode(value) for name, value in self.preset.items()}
        return {name for name, value in began.items() if now.get(os.fsencode(name)) == value}

    @property
    def _data(self) -> Any:
        """The variables themselves; a package may ask for them all the same."""
        if _asks(sys._getframe(1)):
            self.read.add(WHOLE)
        return self.__dict__["_data"]

    def __repr__(self) -> str:
        self.read.add(WHOLE)
        return super().__repr__()

    def __iter__(self) -> Any:
        if not self._is_filtered():
            self.read.add(WHOLE)
        return super().__iter__()

    def keys(self) -> Any:
        """Keys of all variables: ``dict`` and ``**`` ask for them."""
        self.read.add(WHOLE)
        return super().keys()

    def copy(self) -> Any:
        """A copy, of which it is unknown what is read."""
        self.read.add(WHOLE)
        return super().copy()

    def _is_filtered(self) -> bool:
        """Whether the code that goes through all variables compares them with texts that fit none of those."""
        frame: Any = sys._getframe(2)
        while frame.f_back and frame.f_code.co_filename in (os.getenv.__code__.co_filename, ABC):
            frame = frame.f_back
        texts = _texts(frame.f_code)
        names = (*self.varying, *self.contract, *self.preset)
        return bool(texts) and not any(
            name.startswith(text) or text.startswith(name) for text in texts for name in names
        )


COMPREHENSIONS = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")


def _texts(code: Any) -> list[str]:
    """Texts in some code and in its comprehensions, in capitals: those may be code of their own."""
    within = [each for each in code.co_consts if hasattr(each, "co_consts")]
    names = {each.co_name for each in within}  # before 3.11 they are among the texts, as f or f.<locals>.<listcomp>
    own = [text for text in code.co_consts if isinstance(text, str) and text and text.split(".")[-1] not in names]
    inner = [text for each in within if each.co_name in COMPREHENSIONS for text in _texts(each)]
    return [text.upper() for text in own] + inner


def _asks(frame: Any) -> bool:
    """Whether it is a package's code that asks. The standard library looks again, after a fork or when it is used."""
    file = frame.f_code.co_filename
    library = os.path.dirname(os.__file__) + "/"
    return file != __file__ and (not file.startswith((library, "<frozen ")) or "/site-packages/" in file)


class _WatchedMain(type(sys)):  # type: ignore[misc]
    """Stands in for the class of ``__main__`` while modules are preloaded: the program is not there yet."""

    asked: set[str] = set()  # noqa: RUF012 - there is one

    def __getattribute__(self, name: str) -> Any:
        if name not in ("__name__", "__class__") and _asks(sys._getframe(1)):
            _WatchedMain.asked.add(name)
        return super().__getattribute__(name)


class _WatchedCall:
    """Stands in for a function while modules are preloaded: each rank will have another answer than they get."""

    def __init__(self, real: Any, does: str) -> None:
        self.real, self.does = real, does
        self.asked = False

    def __call__(self, *arguments: Any) -> Any:
        self.asked |= _asks(sys._getframe(1))
        return self.real(*arguments)


class _WatchedForks:
    """Stands in for ``os.register_at_fork`` while modules are preloaded: no fork has happened when a program begins, so
    what a package registers takes no part in those that park it.
    """

    def __init__(self) -> None:
        self.real: Any = os.register_at_fork
        self.later: list[dict[str, Any]] = []

    def __call__(self, **functions: Any) -> None:
        if _asks(sys._getframe(1)):
            self.later.append(functions)
        else:
            self.real(**functions)

    def register(self) -> None:
        """Do what was kept back, in a rank."""
        for functions in self.later:
            self.real(**functions)


class _WatchedOpen:
    """Stands in for ``open`` while modules are preloaded: keeps which files are read."""

    def __init__(self) -> None:
        self.real: Any = open
        self.read: set[str] = set()
        self.written: set[str] = set()

    def __call__(self, file: Any, mode: str = "r", *arguments: Any, **more: Any) -> Any:
        if not isinstance(file, int):
            path = os.path.abspath(os.fsdecode(file))
            (self.written if set(mode) & set("wax+") else self.read).add(path)
        return self.real(file, mode, *arguments, **more)

    def files(self) -> set[str]:
        """Files that were read, without what the kernel makes up and what the modules have written themselves."""
        return {path for path in self.read - self.written if not path.startswith(("/proc/", "/sys/", "/dev/"))}


def _replace(pairs: Sequence[tuple[Any, Any]]) -> None:
    """Put functions in the place of others wherever these are imported."""
    new = {id(old): each for old, each in pairs}
    for module in list(sys.modules.values()):
        names = _names(module)
        for name, value in list(names.items()):
            if id(value) in new:
                names[name] = new[id(value)]


def _names(module: Any) -> dict[str, Any]:
    """The names in a module; a lazy one would be loaded by asking it."""
    try:
        found: dict[str, Any] = object.__getattribute__(module, "__dict__")
    except AttributeError:
        return {}
    return found


class _WatchedImports:
    """First on sys.meta_path while modules are preloaded; finds nothing itself. Keeps what was looked for, and what a
    package imports that the program has not: there another module, or none, stood in for it.
    """

    def __init__(self, known: set[str]) -> None:
        self.known = known
        self.is_wanted = False  # the job names it: then it may import more
        self.others: set[str] = set()
        self.tried: set[str] = set()
        self.drawn: dict[str, Any] = {}

    def find_spec(self, name: str, path: object = None, target: object = None) -> Any:
        """Keep a name."""
        frame: Any = sys._getframe(2)
        if frame.f_code.co_name != "_find_and_load_unlocked":
            return None
        self.tried.add(name)
        if name not in self.known and not self.is_wanted:
            while frame and frame.f_code.co_filename.startswith("<frozen importlib"):
                frame = frame.f_back
            if frame and _asks(frame):
                self.others.add(name)
        return self._noting(name, path, target) if name in DRAWING else None

    def _noting(self, name: str, path: object, target: object) -> Any:
        """The spec as others find it; what the module would draw is kept as soon as it is executed: the package that
        imports it may seed it at once.
        """
        finders: list[Any] = list(sys.meta_path)
        found = (each.find_spec(name, path, target) for each in finders[finders.index(self) + 1 :])
        spec: Any = next((spec for spec in found if spec), None)
        execute = getattr(spec and spec.loader, "exec_module", None)
        if execute is None:
            return spec

        def noting(module: Any) -> None:
            del spec.loader.exec_module
            execute(module)
            self.drawn = {**_drawn(), **self.drawn}

        spec.loader.exec_module = noting
        return spec


class _WatchedNames:
    """Stands in for where tempfile draws its names from while modules are preloaded: keeps them."""

    def __init__(self, tempfile: Any) -> None:
        self.tempfile = tempfile
        self.names = iter(tempfile._RandomNameSequence())
        self.drawn: list[str] = []
        tempfile._name_sequence = self

    def __next__(self) -> Any:
        self.drawn.append(next(self.names))
        return self.drawn[-1]

    def left(self) -> bool:
        """Whether something of such a name is still there, and forget them."""
        drawn, self.drawn = self.drawn, []
        return bool(drawn) and any(
            name in found for found in os.listdir(self.tempfile.gettempdir()) for name in drawn
        )

    def remove(self) -> None:
        """Have tempfile draw names of its own again."""
        self.tempfile._name_sequence = None


class _Preloader:
    """Imports modules one by one and looks for what would not survive a fork after each."""

    def __init__(self, order: dict[str, Any], known: set[int], before: dict[str, str]) -> None:
        self.known = known
        self.has_hidden = False
        self.extra = order["preload"]
        self.never = set(order["never"])
        self.main = order["main"]
        self.learned = order["names"]
        found = {name: place for name, place in self.learned if "." not in name and name[:1] != "="}
        self.elsewhere = {name: place for name, place in found.items() if place != _found(name)}
        self.before = before
        calls = {**CALLS, **COUNTS} if order.get("bound") else CALLS
        places = (os, sys.modules["_thread"])
        self.calls = [
            _WatchedCall(getattr(place, name), does)
            for name, does in calls.items()
            for place in places
            if hasattr(place, name)
        ]
        self.forks, self.open = _WatchedForks(), _WatchedOpen()
        self.imports = _WatchedImports({"mmap", *(name for name, _ in self.learned)})  # which the learner imports
        self.temporary: _WatchedNames | None = None
        self.shared: set[bytes] = set()
        self.homes = [os.path.dirname(os.__file__) + "/", "/site-packages/", "/dist-packages/"]
        _Watched.varying, _Watched.contract = frozenset(order["varying"]), tuple(order["contract"])

    def run(self) -> None:
        """Import all; raises _Unsafe."""
        for name in self.elsewhere.keys() & sys.modules.keys():
            raise _Unsafe(name, "is imported by Python itself, and the program has another")
        began = dict(os.environ)
        self.state, self.shared = _state_of_process(), _shared_memory()
        defaults = [name for name in ("PYTORCH_NVML_BASED_CUDA_CHECK",) if name not in os.environ]
        for name in defaults:
            os.environ[name] = "1"  # torch asks the driver, and initialises nothing
        plain = os.environ.__class__
        for environ in (os.environ, os.environb):
            environ.__class__ = _Watched
        folder = _ProgramsFolder()
        watched: list[Any] = [*self.calls, self.forks, self.open]
        _replace([(each.real, each) for each in watched])
        main = sys.modules["__main__"]
        main.__class__ = _WatchedMain
        try:
            self.start_of_python()
            if any(name == "tempfile" for name, _ in self.learned):
                self.load("tempfile", False)
                self.temporary = _WatchedNames(sys.modules["tempfile"])
            with folder:
                self.state = _state_of_process()
                for name, _ in self.learned:
                    if name.startswith("="):
                        _Watched.preset[name[1:]] = began.get(name[1:])
                    else:
                        self.load(name, False)
                for name in self.extra:
                    self.load(name, True)
        finally:
            main.__class__ = type(sys)
            _replace([(each, each.real) for each in watched])
            if self.temporary:
                self.temporary.remove()
            for environ in (os.environ, os.environb):
                environ.__class__ = plain
            for name in defaults:
                del os.environ[name]

    def start_of_python(self) -> None:
        """Do what a start of Python does before its program: sitecustomize, and the .pth files, which were read before
        anything here could watch, once more for a look.
        """
        sys.meta_path.insert(0, self.imports)
        try:
            self.has_hidden = _run_hidden()
            self.look("sitecustomize", True)
            lines = _site_lines()
            if lines:
                self.try_site(lines)
        finally:
            sys.meta_path.remove(self.imports)

    def try_site(self, lines: Sequence[tuple[str, str]]) -> None:
        """Run the code in .pth files in a fork; raises _Unsafe for what `look` finds there."""
        ours, theirs = os.pipe()
        pid = os.fork()
        if pid == 0:
            said = b""
            try:
                self.known |= {ours, theirs}
                self.run_site(lines)
                self.look("", True)
                said = WELL
            except _Unsafe as unsafe:
                said = os.fsencode(unsafe.args[1])
            finally:
                os.write(theirs, said)
                os._exit(0)
        os.close(theirs)
        said = os.read(ours, 4096)
        os.close(ours)
        os.waitpid(pid, 0)
        if said != WELL:
            raise _Unsafe("a .pth file", os.fsdecode(said) or "ends the process or fails when it is run ahead")

    def run_site(self, lines: Sequence[tuple[str, str]]) -> None:
        """Run code of .pth files again, as if for the first time."""
        for name, module in list(sys.modules.items()):
            file = str(_names(module).get("__file__") or self.homes[0])
            if not file.startswith(self.homes[0]) or "-packages/" in file:
                del sys.modules[name]
        for variable in list(os.environ.__dict__["_data"]):
            del os.environb[variable]
        os.environ.update(self.before)
        self.state = _state_of_process()
        for sitedir, line in lines:  # such code may look for a variable of this name
            try:
                exec(line, {"sitedir": sitedir})
            except Exception:  # noqa: BLE001 - Python says so, and goes on
                pass
        self.imports.others.clear()  # the program's first rank has had them before it was learned from

    def changes(self) -> dict[str, str | None]:
        """Variables that the modules have set, or None for those that they have deleted."""
        now = dict(os.environ)
        names = {name for name in {*self.before, *now} if self.before.get(name) != now.get(name)}
        return {name: now.get(name) for name in names}

    def load(self, name: str, wanted: bool) -> None:
        """Import one module, if it may be and can be."""
        top = name.partition(".")[0]
        if name in sys.modules or "__main__" in name.split(".") or name == self.main or self.excluded(name):
            return
        parts = name.split(".")
        if any(each in self.imports.tried and each not in sys.modules for each in _prefixes(parts)):
            return  # a package has tried: it ran, and failed
        first = top not in sys.modules
        if not wanted and (top in self.elsewhere or (first and not self.installed(top))):
            return
        unset: set[str] = os.environ.unset()  # type: ignore[attr-defined]
        native = sorted(each for each in unset if each.startswith(NATIVE))
        libraries = _libraries() if native else set()
        printed = _printed()
        self.imports.is_wanted = wanted
        sys.meta_path.insert(0, self.imports)
        try:
            __import__(name)
        except ImportError:  # the program may well expect that
            if _printed() != printed:
                raise _Unsafe(top, "prints something and fails when it is imported ahead") from None
        except BaseException as error:  # noqa: BLE001 - also SystemExit
            raise _Unsafe(top, "raises " + type(error).__name__ + " when it is imported ahead") from None
        finally:
            if self.imports in sys.meta_path:
                sys.meta_path.remove(self.imports)
        for other in sorted(self.imports.others):
            raise _Unsafe(top, f"imports {other}, which the program has not imported")
        is_own = _found(top).startswith(self.homes[0]) and "-packages/" not in _found(top)
        if native and not is_own and _libraries() - libraries:
            raise _Unsafe(top, f"may read {native[0]}, which the program sets before, while it is imported")
        self.look(top, first, wanted)

    def excluded(self, name: str) -> bool:
        """Whether it, or a package that it is in, is not to be preloaded."""
        return any(each in self.never for each in _prefixes(name.split(".")))

    def installed(self, top: str) -> bool:
        """Whether a package lies where packages are installed: other code may change between two launches."""
        import importlib.util

        try:
            spec = importlib.util.find_spec(top)
        except BaseException:  # noqa: BLE001 - a finder of any package
            return False
        if spec is None:
            return False
        places = [spec.origin] if spec.origin else list(spec.submodule_search_locations or [])
        return all(
            place in ("built-in", "frozen") or any(home in place + "/" for home in self.homes) for place in places
        )

    def look(self, top: str, first: bool, wanted: bool = False) -> None:
        """Raise _Unsafe if the package has left what a fork would break."""
        if _Watched.read:
            raise _Unsafe(top, "reads " + sorted(_Watched.read)[0] + " while it is imported")
        for call in self.calls:
            if call.asked:
                raise _Unsafe(top, f"{call.does} while it is imported")
        if "__warningregistry__" in globals():
            raise _Unsafe(top, "warns of the line that imports it")
        if _WatchedMain.asked:
            raise _Unsafe(top, f"looks for {sorted(_WatchedMain.asked)[0]} of the program while it is imported")
        for name, place in self.elsewhere.items():
            module = _names(sys.modules.get(name))
            if module and (not wanted or _place(module.get("__spec__")) != place):
                raise _Unsafe(top, f"imports {name}, of which the program has another")
        for name in (self.main, self.main + ".__main__") if self.main else ():
            if name in sys.modules and "__path__" not in _names(sys.modules[name]):
                raise _Unsafe(top, f"imports {name}, which the command runs")
        before, self.state = {**self.imports.drawn, **self.state}, _state_of_process()
        for name, value in self.state.items():
            if value != before.get(name, value):
                raise _Unsafe(top, f"changes {name} when it is imported")
        if len(os.listdir("/proc/self/task")) > 1 and not self.ends_at_fork():
            raise _Unsafe(top, "starts a thread when it is imported")
        with open(f"/proc/self/task/{os.getpid()}/children") as file:
            if file.read(4096).strip():
                raise _Unsafe(top, "starts a process when it is imported")
        for name in os.listdir("/proc/self/fd"):
            try:
                place = os.readlink("/proc/self/fd/" + name)
                is_folder = stat.S_ISDIR(os.stat(int(name)).st_mode)
            except OSError:
                continue
            if int(name) not in self.known and not is_folder and place not in ALIKE:
                raise _Unsafe(top, "leaves " + place.partition(":")[0] + " open when it is imported")
        if self.temporary and self.temporary.left():
            raise _Unsafe(top, "leaves a temporary file or folder when it is imported")
        if _shared_memory() - self.shared:
            raise _Unsafe(top, "shares memory when it is imported")
        if first and (_cuda_is_initialised() or _is_in_bad_fork()):
            raise _Unsafe(top, "initialises CUDA when it is imported")

    def ends_at_fork(self) -> bool:
        """Whether the threads end in a fork by themselves, as those of OpenBLAS do."""
        import time

        _probe()
        for _ in range(20):
            if len(os.listdir("/proc/self/task")) == 1:
                return True
            time.sleep(0.005)
        return False


def _state_of_process() -> dict[str, Any]:
    """By name, what an import must not change: a fork or the release would undo it, or the program has set it before.

    Appending to sys.path is what it does at any time.
    """
    signal: Any = __import__("_signal")  # what Python's own is made of
    timers = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
    found: dict[str, Any] = {
        "its directory": os.getcwd(),
        "its processors": os.sched_getaffinity(0),
        "a timer": [signal.getitimer(each)[0] > 0 for each in timers],
        "what a signal does": [signal.getsignal(number) for number in range(1, signal.NSIG)],
        "its session": os.getsid(0),
        "its standard streams": [_file(fd) for fd in (0, 1, 2)],
        "sys.path": sys.path[:1],
        "sys.argv": list(sys.argv),
    }
    root = _of("logging", "root")
    if root:
        found["the root logger"] = (root.level, list(root.handlers))
    return {**found, **_drawn()}


def _of(module: str, name: str) -> Any:
    """Something in a module, if that is imported and has it."""
    return _names(sys.modules.get(module)).get(name)


def _drawn() -> dict[str, Any]:
    """The state of each generator of random numbers, of the modules that are imported."""
    found = {}
    if _of("random", "getstate"):
        found["what random draws"] = _of("random", "getstate")()
    if _of("numpy.random", "get_state"):
        _, key, *rest = _of("numpy.random", "get_state")()
        found["what numpy.random draws"] = (key.tobytes(), rest)
    if _of("torch", "default_generator"):
        found["what torch draws"] = _of("torch", "default_generator").initial_seed()
    return found


def _file(place: int | str) -> tuple[int, int] | None:
    """Device and number of a file, or of what is open."""
    try:
        found = os.stat(place)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _printed() -> list[int]:
    """How much has been printed."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    return [os.fstat(fd).st_size for fd in (1, 2) if _file(fd)]


def _prefixes(parts: Sequence[str]) -> list[str]:
    """The name of a module, given in parts, and of the packages that it is in."""
    return [".".join(parts[:end]) for end in range(1, len(parts) + 1)]


def _site_lines() -> list[tuple[str, str]]:
    """Code that Python's start has run out of .pth files, each with the folder of the file."""
    site: Any = sys.modules["site"]
    folders = [*site.getsitepackages(), *([site.getusersitepackages()] if site.ENABLE_USER_SITE else [])]
    found = []
    for folder in folders:
        for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
            if name.endswith(".pth"):
                with open(os.path.join(folder, name), encoding="utf-8-sig", errors="replace") as file:
                    found += [(folder, line) for line in file if line.startswith(("import ", "import\t"))]
    return found


def _has_modules(place: str) -> bool:
    """Whether modules are found in a place, as in a folder or an archive."""
    for hook in sys.path_hooks:
        try:
            hook(place)
            return True
        except ImportError:
            pass
    return False


class _ProgramsFolder:
    """sys.path begins as it will once Python has come to the program."""

    def __init__(self) -> None:
        script = sys.argv[0]
        self.first: str | None = os.path.dirname(os.path.realpath(script))
        if getattr(sys.flags, "safe_path", False):
            self.first = None
        elif script in ("-c", "-", ""):
            self.first = ""
        elif script == "-m":
            self.first = os.getcwd()
        elif _has_modules(script):
            self.first = os.path.abspath(script) if sys.version_info >= (3, 9) else script

    def __enter__(self) -> None:
        if self.first is not None:
            sys.path.insert(0, self.first)

    def __exit__(self, *error: object) -> None:
        if self.first is not None:
            sys.path.remove(self.first)
            sys.path_importer_cache.pop(self.first or os.getcwd(), None)


def _libraries() -> set[bytes]:
    """Shared libraries that are loaded, without the standard library's own."""
    own = os.fsencode(os.path.dirname(os.__file__) + "/lib-dynload/")
    with open("/proc/self/maps", "rb") as file:
        found = [line.split(None, 5)[-1].strip() for line in file.read(1 << 24).splitlines()]
    return {path for path in found if b".so" in path and not path.startswith(own)}


def _shared_memory() -> set[bytes]:
    """Memory that a fork would not copy, such as what a lock of multiprocessing lies in."""
    with open("/proc/self/maps", "rb") as file:
        kinds = ((line, line.split(b" ", 2)[1]) for line in file.read(1 << 24).splitlines() if b" " in line)
        return {line for line, kind in kinds if kind[1:2] == b"w" and kind[3:] == b"s"}


def _probe() -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


def _cuda_is_initialised() -> bool:
    with open("/proc/self/maps", "rb") as file:
        if not any(b"/libcuda.so" in line for line in file):
            return False
    import ctypes

    count = ctypes.c_int()
    answer: int = ctypes.CDLL("libcuda.so.1").cuDeviceGetCount(ctypes.byref(count))
    return answer != 3  # NOT_INITIALIZED


def _is_in_bad_fork() -> bool:
    """Whether torch would refuse to use its devices in a fork of this process."""
    found = [sys.modules[name] for name in ("torch.cuda", "torch.xpu") if name in sys.modules]
    asked = [each for each in (getattr(module, "_is_in_bad_fork", None) for module in found) if each]
    if not asked:
        return False
    pid = os.fork()
    if pid == 0:
        os._exit(1 if any(each() for each in asked) else 0)
    return os.waitpid(pid, 0)[1] != 0


def _park(order: Sequence[str]) -> bool:
    """Preload, fork the ranks and end; return in each rank once it is released."""
    import json
    import time

    began_ns = time.clock_gettime_ns(REALTIME_COARSE)
    control, spec, sockets = int(order[0]), int(order[1]), [int(fd) for fd in order[2].split(",")]
    for fd in (control, spec, *sockets):
        os.set_inheritable(fd, False)
    said = json.loads(os.pread(spec, 1 << 24, 0))
    os.close(spec)
    space = _Space()
    called = _renamed(PARKED)
    del os.environ["HOLDFAST_GENERATION"]  # for those who look from outside
    known = {0, 1, 2, control, *sockets}
    own = {name: value for name, value in os.environ.items() if name not in said["given"]}  # such as LC_CTYPE
    preloader = _Preloader(said, known, _began_with())
    try:
        preloader.run()
    except _Unsafe as unsafe:
        os.write(control, json.dumps({"unsafe": unsafe.args[0], "why": unsafe.args[1]}).encode() + b"\n")
        os._exit(0)
    import gc

    gc.collect()
    gc.freeze()  # a collection in a rank would copy every page that it looks at
    _printed()
    places, changes = _places(preloader, began_ns), preloader.changes()
    pids = []
    for mine in sockets:
        pid = os.fork()
        if pid == 0:
            os.setpgid(0, 0)
            for fd in (control, *sockets):
                if fd != mine:
                    os.close(fd)
            link, printed, meets = _take_order(mine, places, space, own, changes)
            preloader.forks.register()
            _renamed(called, PARKED)
            _await_word(link, printed)
            if meets:
                _meet()
            return preloader.has_hidden
        pids.append(pid)
    report = {"pids": pids, "modules": len(sys.modules), "python": _file("/proc/self/exe")}
    os.write(control, json.dumps(report).encode() + b"\n")
    os._exit(0)


def _began_with() -> dict[str, str]:
    """The environment of this process's start, before any .pth file of site-packages, without what is ours in it."""
    try:
        with open("/proc/self/environ", "rb") as file:
            pairs = [each.partition(b"=") for each in file.read(1 << 24).split(b"\0") if b"=" in each]
    except OSError:
        return dict(os.environ)  # the kernel may forbid it
    found = {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}
    for name in ("HOLDFAST_WARM", "HOLDFAST_GENERATION", SPACE, "PYTHONPATH"):
        found.pop(name, None)
    if "PYTHONPATH" in os.environ:  # without this folder
        found["PYTHONPATH"] = os.environ["PYTHONPATH"]
    return found


def _renamed(name: bytes, old: bytes = b"") -> bytes:
    """Give this process a name, where it still has an old one; returns the one it had."""
    with open("/proc/self/comm", "r+b", buffering=0) as file:
        before = file.read(64).rstrip(b"\n")
        if before == (old or before):
            file.write(name)
    return before


def _places(preloader: _Preloader, began_ns: int) -> dict[str, tuple[int, int] | None]:
    """The state of all that must not change until the release: where packages lie, the files of all modules, and what
    these have read.

    A file that has changed since the imports began is as none: which state of it was imported is unknown.
    """
    files = {_names(module).get("__file__") for module in list(sys.modules.values())}
    found = {file for file in files if isinstance(file, str)}
    installed = {os.path.dirname(file) for file in found if any(home in file for home in preloader.homes)}
    found |= preloader.open.files()
    states = {place: _state(place) for place in {*sys.path, *found, *installed}}
    return {**states, **{file: (0, 0) for file in found if _changed_ns(file) >= began_ns}}


def _changed_ns(place: str) -> int:
    try:
        return os.stat(place).st_ctime_ns
    except OSError:
        return 0


def _state(place: str) -> tuple[int, int] | None:
    try:
        found = os.stat(place)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino


class _Space:
    """Memory at the end of the environment that this process began with, where /proc/PID/environ shows it.

    What came at the release is written there, so that those who look from outside find RANK and the others, too.
    """

    def __init__(self) -> None:
        os.environ.pop(SPACE, None)
        try:
            with open("/proc/self/stat", "rb") as file:
                fields = file.read(4096).rpartition(b")")[2].split()
            start, self.end = int(fields[47]), int(fields[48])
            with open("/proc/self/environ", "rb") as file:
                said = file.read(self.end - start)
            self.begin = start + said.rindex(b"\0HOLDFAST_GENERATION=") + 1
            if (SPACE + "=").encode() not in said[self.begin - start :]:
                self.begin = self.end
        except (OSError, ValueError, IndexError):
            self.begin = self.end = 0

    def fill(self, variables: Sequence[bytes]) -> None:
        """Write the variables, as many as fit."""
        data, most = b"", self.end - self.begin
        for each in variables:
            if len(data) + len(each) + 1 <= most:
                data += each + b"\0"
        try:
            memory = os.open("/proc/self/mem", os.O_WRONLY | os.O_CLOEXEC)
        except OSError:
            return
        try:
            os.pwrite(memory, data.ljust(most, b"\0"), self.begin)
        except OSError:
            pass  # the kernel may forbid it: then it shows what was known at the start
        finally:
            os.close(memory)


def _take_order(
    fd: int,
    places: dict[str, tuple[int, int] | None],
    space: _Space,
    own: dict[str, str],
    changes: dict[str, str | None],
) -> tuple[Any, list[bytes], bool]:
    """Wait for environment, directory and descriptors, and take them. Returns the link for the last word, what the
    imports have printed, and whether the gang's first rank is waited for.
    """
    import _socket

    link = _socket.socket(fileno=fd)
    head, control, _, _ = link.recvmsg(8, _socket.CMSG_SPACE(16))
    if len(head) < 8:
        os._exit(0)  # no longer needed
    fds = [int.from_bytes(data[at : at + 4], sys.byteorder) for *_, data in control for at in range(0, 16, 4)]
    left, data = int.from_bytes(head, "big"), b""
    while len(data) < left:
        more = link.recv(left - len(data))
        if not more:
            os._exit(0)
        data += more
    for place, state in places.items():
        if _state(place) != state:
            link.send(b"0" + os.fsencode(place)[:300] + b" has changed since")
            os._exit(FAILED)
    printed = [os.pread(fd, os.fstat(fd).st_size, 0) for fd in (1, 2)]
    for target, each in enumerate(fds[:3]):
        os.dup2(each, target)
        os.close(each)
    os.fchdir(fds[3])
    os.close(fds[3])
    given = [each.partition(b"=") for each in data.split(b"\0")[:-1]]
    variables = [each for each in given if each[0] != MEET]
    space.fill([b"=".join((name, value)) for name, _, value in variables if name not in os.environb])
    for name in list(os.environ):
        del os.environ[name]
    os.environb.update({name: value for name, _, value in variables})
    for own_name, text in own.items():
        os.environ.setdefault(own_name, text)
    for name, changed in changes.items():
        if changed is not None:
            os.environ[name] = changed
        elif name in os.environ:
            del os.environ[name]
    _be_new()
    return link, printed, len(variables) < len(given)


def _be_new() -> None:
    """Change in modules what a process of its own would have otherwise."""
    if _of("numpy.random", "seed"):
        _of("numpy.random", "seed")()
    if _of("torch", "default_generator"):
        _of("torch", "default_generator").seed()
    if _of("logging", "_startTime"):
        import time

        logging: Any = sys.modules["logging"]
        logging._startTime = time.time_ns() if isinstance(logging._startTime, int) else time.time()
    if _of("threading", "main_thread"):
        thread = _of("threading", "main_thread")()
        if hasattr(thread, "_set_native_id"):
            thread._set_native_id()  # a fork leaves the number that it had in the process before
    for finalizer in (_of("multiprocessing.util", "_finalizer_registry") or {}).values():
        finalizer._pid = os.getpid()  # it does nothing in a process that has not made it


def _await_word(link: Any, printed: Sequence[bytes]) -> None:
    """Say that all is taken, and return once the program may begin; print what its imports have printed."""
    parent = os.getppid()  # the shim: what was parked with it has ended
    link.send(b"1")
    word = link.recv(1)
    if word not in (b"g", b"e"):
        os._exit(FAILED)  # it has not begun, and must not
    if word == b"e":  # it must not outlive the shim
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, 9)
        if os.getppid() != parent:
            os._exit(FAILED)
    link.close()
    for target, words in enumerate(printed, 1):
        while words:
            words = words[os.write(target, words) :]


def _meet() -> None:
    """Wait until something listens where the gang's first rank is to, but not for ever.

    It may count its peers. So where it is on another host, and only connecting would tell, that is done for torch's
    store alone, which bears it.
    """
    import _socket
    import time

    until, pause_s = time.monotonic() + MEET_S, LOOK_S
    try:
        place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        family, kind, number, _, address = _socket.getaddrinfo(*place, 0, _socket.SOCK_STREAM)[0]
    except (KeyError, ValueError, OSError):
        return
    ours = _socket.socket(family, kind, number)
    try:
        ours.bind((address[0], 0))
        here = True
    except OSError:
        here = False
    ours.close()
    if not here and "torch.distributed" not in sys.modules:
        return
    while time.monotonic() < until:
        if here:
            listens = _is_listening(b":%04X" % place[1])
        else:
            asks = _socket.socket(family, kind, number)
            asks.settimeout(max(0.001, until - time.monotonic()))
            listens = not asks.connect_ex(address)
            asks.close()
        if listens:
            return
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, LONGEST_LOOK_S)


def _is_listening(port: bytes) -> bool:
    """Whether something on this host listens at the port. It does not notice the look."""
    for name in ("tcp", "tcp6"):
        try:
            with open(f"/proc/self/net/{name}", "rb") as lines:
                if any(each[1].endswith(port) and each[3] == LISTENS for each in map(bytes.split, lines)):
                    return True
        except OSError:
            pass  # there is no such network
    return False


def _main() -> bool:
    order = _step_aside()
    if order[:1] == ["park"]:
        try:
            return _park(order[1:])
        except BaseException:  # noqa: BLE001 - whatever it is, the program must not run
            os._exit(FAILED)
    if order[:1] == ["learn"]:
        try:
            sys.meta_path.insert(0, _Learner(int(order[1])))
        except Exception:  # noqa: BLE001 - then nothing is learned
            pass
    return _run_hidden()


if not _main():
    raise ImportError("there is no sitecustomize but the one that has stepped aside", name="sitecustomize")
