#!/usr/bin/env bash
# Prepares this folder for `make run`, `make test` or `make setup`; called again, finds nothing to do and is quick.
#
#   setup.sh run    .venv with what the app needs (no torch), and pango for the PDF report
#   setup.sh test   .venv with everything, and pango, poppler and Chromium
#   setup.sh venv   .venv with everything, no system packages but Python's venv
#
# System packages are installed on Debian and Ubuntu as root or by a sudo that asks no password; otherwise the line
# to type is printed. Nothing outside .venv is touched besides. Another interpreter: PYTHON=/path/to/python make run
set -euo pipefail
cd "$(dirname "$0")/.."

PDF=(libpango-1.0-0 libpangoft2-1.0-0 libharfbuzz-subset0)
TESTS=(poppler-utils chromium)
VERSIONS='import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))'

say() { printf 'headroom: %s\n' "$*" >&2; }
stop() { say "$1"; printf '\n    %s\n\n' "$2" >&2; exit 1; }

# --- system packages ---------------------------------------------------------------------------------------------

missing() { # those of the named packages that are not installed, one a line
    for package in "$@"; do
        [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || echo "$package"
    done
}

line_to_type() { # what a person types to install the named packages
    local apt="apt-get update && apt-get install -y --no-install-recommends $*"
    if [ "$(id -u)" = 0 ]; then echo "$apt"
    elif command -v sudo >/dev/null; then echo "sudo sh -c '$apt'"
    else echo "su -c '$apt'"; fi
}

apt_install() { # false when this user may not, or when it failed
    local as_root=()
    if [ "$(id -u)" != 0 ]; then
        sudo -n true 2>/dev/null || return 1
        as_root=(sudo -n)
    fi
    say "installing $*"
    "${as_root[@]}" apt-get update -qq >&2 || true # one broken source need not matter: the next line decides
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

system_packages() { # system_packages must|should PURPOSE PACKAGE...
    local need=$1 purpose=$2 want=()
    shift 2
    command -v dpkg-query >/dev/null || return 0 # another system: told when .venv is made
    mapfile -t want < <(missing "$@")
    [ ${#want[@]} -gt 0 ] || return 0
    # What only should be there is tried once: a machine without a network must not wait for it at every start.
    if [ "$need" = must ] || ! [ -e .venv/.apt-failed ]; then
        if apt_install "${want[@]}"; then return 0; fi
    fi
    [ "$need" = should ] || stop "$purpose; to install what is missing, type" "$(line_to_type "${want[@]}")"
    touch .venv/.apt-failed 2>/dev/null || true
    say "$purpose. The app runs without it; to have it, type"
    printf '\n    %s\n\n' "$(line_to_type "${want[@]}")" >&2
}

# --- Python ------------------------------------------------------------------------------------------------------

find_python() { # the first of these that runs and is 3.11, 3.12 or 3.13
    for python in ${PYTHON:-python3 python3.13 python3.12 python3.11}; do
        if "$python" -c "$VERSIONS" 2>/dev/null; then echo "$python"; return; fi
    done
    [ -n "${PYTHON:-}" ] || for version in 3.13 3.12 3.11; do
        if apt-cache show "python$version-venv" >/dev/null 2>&1; then
            stop "Python 3.11, 3.12 or 3.13 is needed; type" "$(line_to_type "python$version" "python$version-venv")"
        fi
    done
    stop "Python 3.11, 3.12 or 3.13 is needed (${PYTHON:-python3} is not); with one of them, type" \
        "make run PYTHON=/path/to/python3.13"
}

make_venv() {
    if [ -e .venv ]; then
        .venv/bin/python -c "$VERSIONS" 2>/dev/null && return 0
        stop ".venv holds no working Python 3.11, 3.12 or 3.13; to make it anew, type" "rm -rf .venv && make run"
    fi
    local python
    python=$(find_python)
    if ! "$python" -c 'import ensurepip' 2>/dev/null; then # Debian and Ubuntu ship it apart
        system_packages must "$python cannot make a virtual environment" \
            "$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')"
    fi
    say "making .venv with $("$python" --version)"
    "$python" -m venv .venv || { rm -rf .venv; stop "$python could not make .venv" "make run PYTHON=/path/to/python3.13"; }
    command -v dpkg-query >/dev/null || say "not a Debian or Ubuntu system: PDF reports need pango, installed your way"
}

# What was installed is remembered as a copy of the lines it came from: an edit of a requirements file shows.
light() { grep -vE '^(torch|transformers|peft)==' requirements.txt; }
full() { cat requirements.txt requirements-dev.txt; }
has() { "$1" | cmp -s - ".venv/.installed-$1"; }

pip_install() { .venv/bin/python -m pip install --disable-pip-version-check -qq -r "$1" >&2; }

light_packages() {
    if has full || has light; then return 0; fi
    say "installing Python packages, once (720 MB on disk, a minute or so). torch is left out: planning runs without it."
    light >.venv/light.txt
    pip_install .venv/light.txt
    light >.venv/.installed-light
}

full_packages() {
    if has full; then return 0; fi
    say "installing Python packages, those for tests and torch too, once (2 GB on disk or more, some minutes)"
    pip_install requirements-dev.txt
    full >.venv/.installed-full
}

# -----------------------------------------------------------------------------------------------------------------

case "${1:-}" in
run)
    make_venv
    light_packages
    system_packages should "PDF reports need pango" "${PDF[@]}"
    ;;
test)
    make_venv
    # Ubuntu's Chromium is a snap, which tests cannot start: browser tests are skipped there.
    if grep -qs '^ID=ubuntu' /etc/os-release; then TESTS=(poppler-utils); fi
    system_packages must "the tests read PDFs and drive a browser" "${PDF[@]}" "${TESTS[@]}"
    full_packages
    ;;
venv)
    make_venv
    full_packages
    ;;
*)
    stop "usage: $0 run|test|venv" "make help"
    ;;
esac
