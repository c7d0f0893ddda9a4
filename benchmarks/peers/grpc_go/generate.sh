#!/usr/bin/env bash
# Generate gen/ from schema/: the stubs of the resource service. `make go-programs` runs it.
set -euo pipefail
cd "$(dirname "$0")"
python="${1:-python3}"
rm -rf gen plugins
mkdir -p gen plugins
go build -o plugins/ tool
package=headway/benchmarks/peers/grpc_go/gen
mapped="Mheadway/resource/v1/resource.proto=$package"
PATH="$PWD/plugins:$PATH" "$python" -m grpc_tools.protoc --proto_path=../../../schema \
  --go_out=gen --go_opt="module=$package,$mapped" --go-grpc_out=gen --go-grpc_opt="module=$package,$mapped" \
  headway/resource/v1/resource.proto
