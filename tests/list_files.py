"""Prints the files of FOLDER that match PATTERN, sorted, one a line, relative to FOLDER's parent argument ROOT.

    list_files.py ROOT PATTERN        list_files.py tests 'core/*_test.cpp'

Meson has no glob, on purpose: a new file is seen at the next configure, which tests/run.sh always does.
"""

import pathlib
import sys

root = pathlib.Path(sys.argv[1])
for path in sorted(root.glob(sys.argv[2])):
    print(path.relative_to(root).as_posix())
