#!/usr/bin/env bash
# Generate gen/ from schema/: the stubs that main.go imports. `make go-programs` runs it.
set -euo pipefail
cd "$(dirname "$0")"
python="${1:-python3}"
rm -rf gen plugins
mkdir -p gen plugins
go build -o plugins/ tool
PATH="$PWD/plugins:$PATH" "$python" -m grpc_tools.protoc --proto_path=../../../schema \
  --go_out=gen --go_opt=paths=source_relative,Mheadway/resource/v1/resource.proto=headway/tests/go/client/gen \
  --go-grpc_out=gen --go-grpc_opt=paths=source_relative,Mheadway/resource/v1/resource.proto=headway/tests/go/client/gen \
  headway/resource/v1/resource.proto
mv gen/headway/resource/v1/*.go gen/
rm -r gen/headway
