package telemetry

import (
	"fmt"
	"net/url"
	"os"
	"strings"
)

// otelSignals says which signals the standard environment variables ask for.
type otelSignals struct{ traces, metrics bool }

func (s otelSignals) any() bool { return s.traces || s.metrics }

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

// otelSignal reports whether one signal, TRACES or METRICS, is to be exported.
func otelSignal(signal string) (bool, error) {
	name, endpoint := otelVariable(signal, "ENDPOINT")
	if endpoint == "" {
		return false, nil
	}
	switch exporter := "OTEL_" + signal + "_EXPORTER"; os.Getenv(exporter) {
	case "none":
		return false, nil
	case "", "otlp":
	default:
		return false, fmt.Errorf("%s is %q: there are otlp and none", exporter, os.Getenv(exporter))
	}
	if u, err := url.Parse(endpoint); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return false, fmt.Errorf("%s is not an address such as http://127.0.0.1:4318", name) // which may hold a password
	}
	if name, protocol := otelVariable(signal, "PROTOCOL"); protocol != "" && protocol != "http/protobuf" {
		return false, fmt.Errorf("%s is %q: there is http/protobuf alone, which collectors take at port 4318", name, protocol)
	}
	return true, nil
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
