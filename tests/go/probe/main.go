// A health probe as others write them: one Check of the standard service, with grpc's default options.
// It ends with 0 only if the service is SERVING.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"flag"
	"fmt"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
)

func main() {
	address := flag.String("addr", "", "HOST:PORT, or unix:PATH")
	service := flag.String("service", "", "the service to ask for; empty: the server")
	authority := flag.String("tls-ca-cert", "", "a file with whom to believe; empty: no TLS")
	flag.Parse()
	status, err := check(*address, *service, *authority)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	fmt.Println(status)
	if status != grpc_health_v1.HealthCheckResponse_SERVING {
		os.Exit(4)
	}
}

func check(address, service, authority string) (grpc_health_v1.HealthCheckResponse_ServingStatus, error) {
	with := insecure.NewCredentials()
	if authority != "" {
		pem, err := os.ReadFile(authority)
		if err != nil {
			return 0, err
		}
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(pem)
		with = credentials.NewTLS(&tls.Config{RootCAs: pool})
	}
	connection, err := grpc.NewClient(address, grpc.WithTransportCredentials(with))
	if err != nil {
		return 0, err
	}
	defer connection.Close()
	limit, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	reply, err := grpc_health_v1.NewHealthClient(connection).Check(limit, &grpc_health_v1.HealthCheckRequest{Service: service})
	return reply.GetStatus(), err
}
