import ctypes
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import redlatch
from redlatch import _library
from scenario import Scenario

REPOSITORY = Path(__file__).resolve().parents[3]
LIBRARY = Path(os.environ["REDLATCH_TEST_LIBRARY"])
LOAD = "import redlatch; print(redlatch.LIBRARY_PATH); redlatch.Client('memory://').lock('x').acquire().release()"


class Loading(Scenario):
    def load(self, package=None, **environment):
        clean = {
            name: value for name, value in os.environ.items() if name not in ("REDLATCH_LIBRARY", "LD_LIBRARY_PATH")
        }
        clean["PYTHONPATH"] = str(package or Path(redlatch.__file__).parents[1])
        return subprocess.run(
            [sys.executable, "-c", LOAD],
            env={**clean, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            timeout=120,
        )

    def test_the_library_is_the_file_that_is_named(self):
        loaded = self.succeed(self.load(REDLATCH_LIBRARY=str(LIBRARY)))
        self.assertEqual(loaded.strip(), str(LIBRARY))

    def test_a_file_that_is_named_in_vain_is_an_error(self):
        for named in ("/nowhere/libredlatch.so", __file__):
            # Although it could be found elsewhere.
            finished = self.load(REDLATCH_LIBRARY=named, LD_LIBRARY_PATH=str(LIBRARY.parent))
            self.assertEqual(finished.returncode, 1)
            self.assertIn("ImportError: REDLATCH_LIBRARY", finished.stderr)
            self.assertIn(named, finished.stderr)

    def test_another_library_is_refused(self):
        finished = self.load(REDLATCH_LIBRARY=ctypes.util.find_library("c") or "libc.so.6")
        self.assertIn("is not redlatch's C library", finished.stderr)

    def test_the_library_is_found_by_the_loader(self):
        loaded = self.succeed(self.load(LD_LIBRARY_PATH=str(LIBRARY.parent)))
        self.assertEqual(loaded.strip(), _library._file_name())

    def test_the_library_is_found_beside_the_package(self):
        with tempfile.TemporaryDirectory() as directory:
            package = Path(directory) / "redlatch"
            shutil.copytree(Path(redlatch.__file__).parent, package)
            shutil.copy(LIBRARY, package / _library._file_name())
            loaded = self.succeed(self.load(package=directory))
            self.assertEqual(loaded.strip(), str((package / _library._file_name()).resolve()))

    def test_the_library_is_found_below_the_home_directory_and_where_pkg_config_looks(self):
        with tempfile.TemporaryDirectory() as home:
            lib = Path(home) / ".local" / "lib"
            (lib / "pkgconfig").mkdir(parents=True)
            shutil.copy(LIBRARY, lib / _library._file_name())
            for environment in ({"HOME": home}, {"PKG_CONFIG_PATH": str(lib / "pkgconfig")}):
                self.assertEqual(self.succeed(self.load(**environment)).strip(), str(lib / _library._file_name()))

    def test_what_is_not_found_says_what_was_tried(self):
        finished = self.load(HOME="/nowhere")
        if finished.returncode == 0:
            self.skipTest("redlatch is installed on this machine: " + finished.stdout)
        for said in ("ImportError", "scripts/install", "REDLATCH_LIBRARY", "/nowhere/.local/lib", "/usr/local/lib"):
            self.assertIn(said, finished.stderr)

    def test_a_library_of_another_minor_version_is_refused(self):
        class Library:
            def __init__(self, number):
                # A function, since its result's type is set.
                self.redlatch_version_number = lambda: number

        for number in (1000, 1099):
            _library._check_version(Library(number), "there")
        for number in (0, 999, 2000, 1000000, 1001000):
            with self.assertRaisesRegex(ImportError, "there is redlatch .* needs 0.1.x"):
                _library._check_version(Library(number), "there")


class Declarations(unittest.TestCase):
    def test_all_functions_are_declared(self):
        symbols = (REPOSITORY / "include/redlatch.symbols").read_text().split()
        self.assertEqual(sorted(_library._FUNCTIONS), sorted(symbols))

    def test_declarations_are_those_of_the_header(self):
        kinds = {
            "int32_t": ctypes.c_int32,
            "uint32_t": ctypes.c_uint32,
            "uint64_t": ctypes.c_uint64,
            "size_t": ctypes.c_size_t,
            "bool": ctypes.c_bool,
            "void": None,
            "void *": ctypes.c_void_p,
            "bool *": ctypes.POINTER(ctypes.c_bool),
            "int32_t *": ctypes.POINTER(ctypes.c_int32),
            "uint32_t *": ctypes.POINTER(ctypes.c_uint32),
            "uint64_t *": ctypes.POINTER(ctypes.c_uint64),
            "size_t *": ctypes.POINTER(ctypes.c_size_t),
            # That of several names, each of which is const; "char **" is a place for a key.
            "char * *": ctypes.POINTER(ctypes.c_char_p),
            "redlatch_lost_fn": _library.LostFunction,
            "redlatch_destroy_fn": _library.DestroyFunction,
            "redlatch_work_fn": _library.WorkFunction,
        }

        def fits(declared, kind):
            if kind in kinds:
                return declared is kinds[kind]
            if kind == "char *":
                return declared in (ctypes.c_char_p, ctypes.c_void_p)
            if kind.endswith("**"):
                return declared is ctypes.POINTER(ctypes.c_void_p)
            return kind.startswith("redlatch_") and kind.endswith(" *") and declared is ctypes.c_void_p

        header = (REPOSITORY / "include/redlatch.h").read_text()
        header = re.sub(r"/\*.*?\*/|//[^\n]*", "", header, flags=re.S)
        prototypes = re.findall(r"^((?:const )?\w+ \*?)(redlatch_\w+)\(([^)]*)\);", header, flags=re.M)
        self.assertEqual(sorted(name for _, name, _ in prototypes), sorted(_library._FUNCTIONS))
        for returned, name, parameters in prototypes:
            texts = [returned] + ([] if parameters == "void" else parameters.split(","))
            # Without const, and without the name of the parameter.
            texts = [" ".join(text.replace("const", "").split()) for text in texts]
            texts = texts[:1] + [re.sub(r"(?<=[ *])\w+$", "", text).strip() for text in texts[1:]]
            declared = _library._FUNCTIONS[name]
            self.assertEqual(len(declared), len(texts), name)
            for one, text in zip(declared, texts):
                self.assertTrue(fits(one, text), f"{name}: {text!r} is declared as {one}")

    def test_every_status_has_its_exception(self):
        from redlatch import _errors

        header = (REPOSITORY / "include/redlatch.h").read_text()
        statuses = {int(code): name for name, code in re.findall(r"#define REDLATCH_(\w+) (-\d+)", header)}
        self.assertEqual(sorted(statuses), sorted(_errors._CLASSES))
        lost = {int(code): name for name, code in re.findall(r"#define REDLATCH_LOST_(\w+) (\d+)", header)}
        del lost[0]
        self.assertEqual(lost, {reason.value: reason.name for reason in redlatch.LostReason})

    def test_the_versions_are_one(self):
        crate = re.search(r'^version = "(.*)"', (REPOSITORY / "Cargo.toml").read_text(), flags=re.M)[1]
        package = (REPOSITORY / "ffi-examples/python/pyproject.toml").read_text()
        self.assertEqual(re.search(r'^version = "(.*)"', package, flags=re.M)[1], crate)
        self.assertEqual((redlatch.__version__, redlatch.library_version()), (crate, crate))
        self.assertEqual(_library._COMPATIBLE, ".".join(crate.split(".")[:2]))


if __name__ == "__main__":
    unittest.main()
