# shellcheck shell=bash
# Sourced by tests/run.sh and examples/quickstart.sh: installs what a bare Debian or Ubuntu lacks, and finds nvcc.
#
#   setup_packages [MORE...]   apt-installs the compilers, Meson and the libraries that are missing; nothing if none is
#   setup_cuda FOLDER          puts an nvcc on PATH: the machine's own, else NVIDIA's PyPI wheels unpacked in FOLDER;
#                              returns 1, having said why, where neither works
#   step TEXT                  prints TEXT with the seconds since the script began

step() { printf '\n== %s (at %s s)\n' "$*" "$SECONDS"; }

setup_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}

# Installs those of the named Debian packages that are not there yet.
setup_apt() {
  local package missing=()
  for package in "$@"; do
    dpkg -s "$package" 2>/dev/null | grep -q '^Status: install ok installed' || missing+=("$package")
  done
  [ ${#missing[@]} = 0 ] && return 0
  echo "installing: ${missing[*]}"
  local try
  for try in 1 2 3; do
    setup_root env DEBIAN_FRONTEND=noninteractive apt-get update -qq </dev/null &&
      setup_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" \
        </dev/null >/dev/null && return 0
    echo "apt-get failed (try $try of 3)" >&2
    sleep $((try * 3))
  done
  return 1
}

setup_packages() {
  if ! command -v dpkg >/dev/null || ! command -v apt-get >/dev/null; then
    echo "not a Debian or Ubuntu: g++ 12, meson, ninja, pkg-config, python3, doctest, rapidcheck, nlohmann_json," \
      "CLI11 and fmt must be there already"
    return 0
  fi
  setup_apt g++ meson ninja-build pkg-config python3 nlohmann-json3-dev libcli11-dev libfmt-dev "$@"
}

# A pip that works, in $setup_pip; nothing is ever installed into the system's Python with it.
setup_find_pip() {
  export PIP_ROOT_USER_ACTION=ignore
  setup_pip=(python3 -m pip --disable-pip-version-check --no-input -q)
  "${setup_pip[@]}" --version >/dev/null 2>&1 && return 0
  command -v apt-get >/dev/null && setup_apt python3-pip ca-certificates &&
    "${setup_pip[@]}" --version >/dev/null 2>&1
}

# Compiles a kernel with the nvcc on PATH, which is what counts.
setup_nvcc_works() {
  local folder
  folder=$(mktemp -d) || return 1
  echo '__global__ void probe() {} int main() { probe<<<1, 1>>>(); }' >"$folder/probe.cu"
  local works=1
  nvcc -std=c++20 -arch=sm_90 -o "$folder/probe" "$folder/probe.cu" >"$folder/log" 2>&1 && works=0
  [ $works = 0 ] || sed 's/^/  nvcc: /' "$folder/log" | head -5
  rm -rf "$folder"
  return $works
}

# Versions that were tried together; each wheel unpacks below nvidia/cu13.
setup_cuda_wheels=(
  nvidia-cuda-nvcc==13.0.88 nvidia-cuda-crt==13.0.88 nvidia-nvvm==13.0.88
  nvidia-cuda-runtime==13.0.96 nvidia-cuda-cccl==13.0.85
)

setup_cuda() {
  local folder=$1 home
  if ! command -v nvcc >/dev/null; then
    for home in "${CUDA_HOME:-}" "${CUDA_PATH:-}" /usr/local/cuda; do
      if [ -n "$home" ] && [ -x "$home/bin/nvcc" ]; then
        export PATH="$home/bin:$PATH"
        break
      fi
    done
  fi
  if command -v nvcc >/dev/null; then
    if setup_nvcc_works; then
      echo "nvcc: $(command -v nvcc)"
      return 0
    fi
    echo "$(command -v nvcc) does not compile C++20 for sm_90"
  fi

  home=$folder/nvidia/cu13
  if [ ! -e "$folder/complete" ]; then
    if [ "$(uname -m)" != x86_64 ] && [ "$(uname -m)" != aarch64 ]; then
      echo "no nvcc to use here, and NVIDIA has no wheels for $(uname -m): only the host half is built"
      return 1
    fi
    echo "no nvcc to use here: taking the CUDA compiler, CUB and runtime from PyPI (100 MB) into $folder"
    rm -rf "$folder"
    mkdir -p "$folder"
    if ! setup_find_pip; then
      echo "no pip, and none could be installed: only the host half is built"
      return 1
    fi
    if ! "${setup_pip[@]}" install --no-deps --no-compile --only-binary=:all: --target "$folder" \
      "${setup_cuda_wheels[@]}" </dev/null; then
      echo "the CUDA wheels could not be had: only the host half is built"
      return 1
    fi
    # nvcc looks for the runtime in lib64, the wheel has it in lib.
    [ -e "$home/lib64" ] || ln -s lib "$home/lib64"
    chmod +x "$home"/bin/* "$home"/nvvm/bin/* 2>/dev/null || true
  fi
  export PATH="$home/bin:$PATH"
  if ! setup_nvcc_works; then
    echo "the nvcc in $folder does not compile: only the host half is built"
    PATH=${PATH#"$home/bin:"}
    return 1
  fi
  touch "$folder/complete"
  echo "nvcc: $home/bin/nvcc"
}

# Configures BUILD, anew or again, with the given Meson arguments.
setup_configure() {
  local source=$1 build=$2
  shift 2
  if [ -f "$build/build.ninja" ] && meson setup --reconfigure "$build" "$source" "$@" </dev/null; then return 0; fi
  # A first time, or a folder whose compilers changed. The CUDA wheels in it stay.
  if [ -d "$build" ]; then find "$build" -mindepth 1 -maxdepth 1 ! -name cuda -exec rm -rf {} +; fi
  # The compiler by its full path, so that ninja alone works later, without this script's PATH.
  local native=()
  if command -v nvcc >/dev/null; then
    mkdir -p "$build"
    printf "[binaries]\ncuda = '%s'\n" "$(command -v nvcc)" >"$build/nvcc.ini"
    native=(--native-file "$build/nvcc.ini")
  fi
  meson setup "${native[@]}" "$build" "$source" "$@" </dev/null
}
