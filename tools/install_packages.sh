#!/usr/bin/env bash
# Installs what is missing of the named package lists (build, test, dev), and only that:
#   tools/install_packages.sh build test
# Recommended packages are left out, so no daemon is installed or enabled.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

missing=()
for list in "$@"; do
  file="$here/packages/$list.txt"
  [ -f "$file" ] || { echo "install_packages: no list named '$list' in tools/packages" >&2; exit 2; }
  while read -r package; do
    case "$package" in ''|'#'*) continue ;; esac
    status=$(dpkg-query -W -f='${Status}' "$package" 2>/dev/null || true)
    [ "$status" = "install ok installed" ] || missing+=("$package")
  done < "$file"
done
[ ${#missing[@]} -eq 0 ] && exit 0

sudo=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || {
    echo "install_packages: need root to install: ${missing[*]}" >&2
    echo "install_packages: run 'apt-get install ${missing[*]}' as root, then try again" >&2
    exit 1
  }
  sudo=(sudo)
fi
echo "installing: ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
apt=(apt-get -o DPkg::Lock::Timeout=300 -qq)
"${sudo[@]}" "${apt[@]}" update
"${sudo[@]}" "${apt[@]}" install -y --no-install-recommends "${missing[@]}" >/dev/null
