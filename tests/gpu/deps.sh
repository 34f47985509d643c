#!/usr/bin/env bash
# Gathers what a GPU machine without a network may lack into a folder to take along:
#   tests/gpu/deps.sh [FOLDER]        (default build/gpu-deps)
# the headers of nlohmann-json and pybind11 from their wheels, GoogleTest's headers and libraries from
# this platform.
set -euo pipefail
cd "$(dirname "$0")/../.."
folder=${1:-build/gpu-deps}
mkdir -p "$folder/python" "$folder/gtest/lib"
python3 -m pip install -q --disable-pip-version-check --no-deps --upgrade \
  --target "$folder/python" "nlohmann-json>=3.11" "pybind11>=3"
cp -r /usr/include/gtest "$folder/gtest/" 2>/dev/null || {
  echo "GoogleTest is missing: install libgtest-dev"
  exit 1
}
mkdir -p "$folder/gtest/include"
rm -rf "$folder/gtest/include/gtest"
mv "$folder/gtest/gtest" "$folder/gtest/include/"
cp "$(g++ -print-file-name=libgtest.a)" "$(g++ -print-file-name=libgtest_main.a)" "$folder/gtest/lib/"
echo "$folder is ready: $(du -sh "$folder" | cut -f1)"
