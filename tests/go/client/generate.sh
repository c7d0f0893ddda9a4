#!/usr/bin/env bash
# Generate gen/ from schema/: the stubs that the client imports. `make go-programs` runs it.
set -euo pipefail
cd "$(dirname "$0")"
python="${1:-python3}"
rm -rf gen plugins
mkdir -p gen plugins
go build -o plugins/ tool
package=headway/tests/go/client/gen
mapped="Mheadway/resource/v1/resource.proto=$package,Mheadway/subscribe/v1/subscribe.proto=$package/subscribe"
PATH="$PWD/plugins:$PATH" "$python" -m grpc_tools.protoc --proto_path=../../../schema \
  --go_out=gen --go_opt="module=$package,$mapped" --go-grpc_out=gen --go-grpc_opt="module=$package,$mapped" \
  headway/resource/v1/resource.proto headway/subscribe/v1/subscribe.proto

# The catalog's, which catalog/ imports.
schema=../../../examples/catalog/schema
mapped=""
files=()
for part in resource catalog/v2beta1 auth/v2beta1 multicluster/v2; do
  for file in "$schema/hashicorp/consul/$part"/*.proto; do
    name="hashicorp/consul/$part/$(basename "$file")"
    mapped+="${mapped:+,}M$name=$package/consul/${part%%/*}"
    files+=("$name")
  done
done
PATH="$PWD/plugins:$PATH" "$python" -m grpc_tools.protoc --proto_path="$schema" \
  --go_out=gen --go_opt="module=$package,$mapped" --go-grpc_out=gen --go-grpc_opt="module=$package,$mapped" "${files[@]}"
