package telemetry

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-llm/sluice/provider"
)

// otelEnvironment returns a client for the collector that the environment names, and nil if no spans are to be exported. Its
// error names the variable that asks for what there is not.
func otelEnvironment(version string) (*traceClient, error) {
	variable, address := otelVariable("ENDPOINT")
	switch name := os.Getenv("OTEL_TRACES_EXPORTER"); {
	case address == "" || name == "none" || strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true"):
		return nil, nil
	case name != "" && name != "otlp":
		return nil, fmt.Errorf("OTEL_TRACES_EXPORTER is %q, but must be otlp or none", name)
	}
	if u, err := url.Parse(address); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("%s is not an address such as http://127.0.0.1:4318", variable) // which may hold a password
	}
	if !strings.Contains(variable, "_TRACES_") {
		address = strings.TrimRight(address, "/") + "/v1/traces"
	}
	const only = "http/protobuf"
	if name, protocol := otelVariable("PROTOCOL"); protocol != "" && protocol != only {
		return nil, fmt.Errorf("%s is %q, but must be %s", name, protocol, only)
	}
	variable, timeout := otelVariable("TIMEOUT")
	ms, err := strconv.Atoi(cmp.Or(timeout, "10000"))
	if err != nil || ms <= 0 {
		return nil, fmt.Errorf("%s is %q, not a number of milliseconds", variable, timeout)
	}
	header := http.Header{"Content-Type": {"application/x-protobuf"}, "User-Agent": {"sluice/" + version}}
	_, pairs := otelVariable("HEADERS")
	for pair := range strings.SplitSeq(pairs, ",") {
		key, value, _ := strings.Cut(pair, "=")
		if plain, err := url.PathUnescape(value); err == nil && strings.TrimSpace(key) != "" {
			header.Set(strings.TrimSpace(key), strings.TrimSpace(plain))
		}
	}
	return &traceClient{url: address, header: header, http: http.Client{
		Transport: provider.NewBase(1), Timeout: time.Duration(ms) * time.Millisecond,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // the header holds keys
	}}, nil
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
