# The virtual environment that the scripts beside this file run in; sourced by them.

die() {
  printf 'Error: %s\n' "$*" >&2
  exit 1
}

# The first Python that is new enough and can make virtual environments.
find_python() {
  local candidate
  for candidate in ${PYTHON:-python3.11 python3.12 python3.13 python3 python}; do
    if "$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
    then
      printf '%s\n' "$candidate"
      return
    fi
  done
  die "no Python 3.11 or newer with venv and pip was found (looked for: ${PYTHON:-python3.11 python3.12 python3.13 python3 python})." \
    "Install one (Debian: apt-get install python3 python3-venv), or name it: PYTHON=/path/to/python $0"
}

# What an installation depends on, as one number.
wanted_stamp() {
  cat pyproject.toml constraints.txt batchjobs/__init__.py | cksum
}

# is_installed EXTRAS: whether .venv has what the files now ask for, with these extras.
is_installed() {
  [[ -x .venv/bin/python && "$(cat ".venv/.installed-$1" 2>/dev/null)" == "$(wanted_stamp)" ]]
}

# prepare_environment base|test: make .venv and install into it, unless that is done already.
prepare_environment() {
  local extras=$1 target=.
  [[ $extras == test ]] && target='.[test]'
  if is_installed "$extras"; then
    return
  fi
  if ! .venv/bin/python -c 'import pip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    local python
    python=$(find_python)
    echo "Making a virtual environment in .venv with $("$python" --version) …"
    "$python" -m venv --clear .venv
  fi
  echo "Installing into .venv (some minutes the first time) …"
  .venv/bin/python -m pip install --quiet --disable-pip-version-check \
    --constraint constraints.txt --editable "$target" ||
    die "the installation failed; pip says why above. Run $0 again when that is mended."
  wanted_stamp >.venv/.installed-base
  [[ $extras == base ]] || wanted_stamp >".venv/.installed-$extras"
}

# prepare_browser: Chromium, for the tests of the page; without it they are skipped.
prepare_browser() {
  local program
  for program in "${BATCHJOBS_TEST_CHROMIUM:-}" chromium chromium-browser google-chrome; do
    if [[ -n $program ]] && command -v "$program" >/dev/null; then
      return
    fi
  done
  if [[ $(id -u) != 0 ]] || ! command -v apt-get >/dev/null; then
    echo "There is no Chromium: the tests of the page in a browser are skipped." \
      "Install one to run them (Debian: apt-get install chromium)." >&2
    return
  fi
  echo "Installing Chromium for the tests of the page …"
  if ! { apt-get update -qq &&
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium; } \
    >/dev/null 2>&1; then
    echo "Chromium could not be installed: the tests of the page in a browser are skipped." >&2
  fi
}
