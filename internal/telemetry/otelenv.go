package telemetry

import (
	"fmt"
	"net/url"
	"os"
	"strings"
)

// Protocols of the standard variables; "" exports nothing.
const (
	otelHTTP = "http/protobuf" // the default
	otelGRPC = "grpc"
)

// otelSignals says by which protocol each signal is to be exported.
type otelSignals struct{ traces, metrics string }

// OTelWanted reports whether the environment names a collector of OpenTelemetry.
func OTelWanted() bool {
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") {
		return false
	}
	for _, name := range [...]string{"ENDPOINT", "TRACES_ENDPOINT", "METRICS_ENDPOINT"} {
		if os.Getenv("OTEL_EXPORTER_OTLP_"+name) != "" {
			return true
		}
	}
	return false
}

// otelEnvironment reads what to export. Its error names the variable that asks for what there is not.
func otelEnvironment() (otelSignals, error) {
	traces, err := otelSignal("TRACES")
	if err != nil {
		return otelSignals{}, err
	}
	metrics, err := otelSignal("METRICS")
	return otelSignals{traces, metrics}, err
}

// otelSignal returns the protocol by which one signal, TRACES or METRICS, is to be exported.
func otelSignal(signal string) (protocol string, err error) {
	address, endpoint := otelVariable(signal, "ENDPOINT")
	exporter := "OTEL_" + signal + "_EXPORTER"
	switch name := os.Getenv(exporter); {
	case endpoint == "" || name == "none":
		return "", nil
	case name != "" && name != "otlp":
		return "", fmt.Errorf("%s is %q: there are otlp and none", exporter, name)
	}
	if u, err := url.Parse(endpoint); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return "", fmt.Errorf("%s is not an address such as http://127.0.0.1:4318", address) // which may hold a password
	}
	name, protocol := otelVariable(signal, "PROTOCOL")
	switch protocol {
	case "":
		return otelHTTP, nil
	case otelHTTP, otelGRPC:
		return protocol, nil
	}
	return "", fmt.Errorf("%s is %q: there are %s and %s", name, protocol, otelHTTP, otelGRPC)
}

// otelVariable returns the variable of a signal, or else the one of all signals, and what it holds.
func otelVariable(signal, what string) (name, value string) {
	name = "OTEL_EXPORTER_OTLP_" + signal + "_" + what
	if value = os.Getenv(name); value != "" {
		return name, value
	}
	name = "OTEL_EXPORTER_OTLP_" + what
	return name, os.Getenv(name)
}

// OTelSecrets returns the texts of the environment that no message may show: the headers that go to the collector, which
// hold its keys, and the password of its address.
func OTelSecrets() []string {
	var secrets []string
	for _, signal := range [...]string{"TRACES_", "METRICS_", ""} {
		for pair := range strings.SplitSeq(os.Getenv("OTEL_EXPORTER_OTLP_"+signal+"HEADERS"), ",") {
			_, value, _ := strings.Cut(pair, "=")
			secrets = append(secrets, value)
			if plain, err := url.PathUnescape(value); err == nil {
				secrets = append(secrets, strings.Fields(plain)...) // "Bearer" and the key behind it
			}
		}
		if u, err := url.Parse(os.Getenv("OTEL_EXPORTER_OTLP_" + signal + "ENDPOINT")); err == nil && u.User != nil {
			password, _ := u.User.Password()
			secrets = append(secrets, password)
		}
	}
	return secrets
}
