// Command grpc_go has the two programs of the network's rows: a plain server of the resource service on grpc-go, and a
// client that measures what a call costs a server, whoever made it.
//
// Usage: grpc_go serve COUNT, or grpc_go load FLAGS (grpc_go load -help lists them)
package main

import (
	"fmt"
	"os"
)

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	modes := map[string]func([]string) error{"serve": serve, "load": load}
	if len(os.Args) < 2 || modes[os.Args[1]] == nil {
		must(fmt.Errorf("usage: %s serve COUNT, or %s load FLAGS", os.Args[0], os.Args[0]))
	}
	must(modes[os.Args[1]](os.Args[2:]))
}
