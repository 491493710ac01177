package telemetry

import (
	"fmt"
	"net/url"
	"os"
	"strings"
)

// otelEnvironment reports whether spans are to be exported. Its error names the variable that asks for what there is not.
func otelEnvironment() (wanted bool, err error) {
	address, endpoint := otelVariable("ENDPOINT")
	switch name := os.Getenv("OTEL_TRACES_EXPORTER"); {
	case endpoint == "" || name == "none" || strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true"):
		return false, nil
	case name != "" && name != "otlp":
		return false, fmt.Errorf("OTEL_TRACES_EXPORTER is %q: there are otlp and none", name)
	}
	if u, err := url.Parse(endpoint); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return false, fmt.Errorf("%s is not an address such as http://127.0.0.1:4318", address) // which may hold a password
	}
	const only = "http/protobuf"
	if name, protocol := otelVariable("PROTOCOL"); protocol != "" && protocol != only {
		return false, fmt.Errorf("%s is %q: there is %s", name, protocol, only)
	}
	return true, nil
}

// otelVariable returns the variable of traces, or else the one of all signals, and what it holds.
func otelVariable(what string) (name, value string) {
	name = "OTEL_EXPORTER_OTLP_TRACES_" + what
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
	for _, signal := range [...]string{"TRACES_", ""} {
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
