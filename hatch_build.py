"""Compiles the kernels of active weights where there is a compiler; without one the package installs all the same."""

import os
import platform
import shutil
import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCE = Path("src/framp/execution/kernels.cpp")
FLAGS = ["-O3", "-std=c++17", "-shared", "-fPIC", "-fno-math-errno", "-ffp-contract=fast"]
X86 = {
    "avx512": ["-DVECTOR_BYTES=64", "-mavx512f", "-mavx512dq", "-mavx512vl", "-mavx512bw", "-mfma"],
    "avx2": ["-DVECTOR_BYTES=32", "-mavx2", "-mfma"],
}
PLAIN = {"plain": ["-DVECTOR_BYTES=16"]}


class CompileKernels(BuildHookInterface):  # type: ignore[type-arg]
    """Puts one library for each instruction set beside the source."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and let the wheel say which system it is for if anything came of it."""
        compiler = os.environ.get("CXX") or next(filter(shutil.which, ("g++", "clang++", "c++")), None)
        folder = Path(self.root) / SOURCE.parent / "lib"
        try:
            folder.mkdir(exist_ok=True)
            for old in folder.glob("kernels-*.so"):
                old.unlink()
        except OSError as error:
            self.app.display_warning(f"kernels were not compiled: {error}")
            return
        builds = (X86 if platform.machine() in ("x86_64", "AMD64") else {}) | PLAIN
        for name, flags in builds.items() if compiler else ():
            library = folder / f"kernels-{name}.so"
            command = [compiler, *FLAGS, *flags, str(Path(self.root) / SOURCE), "-o", f"{library}.new"]
            try:
                subprocess.run(command, check=True, capture_output=True)
                os.replace(f"{library}.new", library)
            except (OSError, subprocess.CalledProcessError) as error:
                self.app.display_warning(f"kernels for {name} were not compiled: {error}")
        if any(folder.glob("*.so")):
            build_data["artifacts"].append(f"{SOURCE.parent}/lib/*.so")
            build_data["pure_python"] = False
            build_data["infer_tag"] = True
