package telemetry_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-llm/sluice/internal/telemetry"
)

func TestWhatTheEnvironmentAsksFor(t *testing.T) {
	for _, test := range []struct {
		name   string
		env    []string
		wanted bool
		err    string
	}{
		{"nothing", nil, false, ""},
		{"an endpoint", []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1"}, true, ""},
		{"disabled", []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1", "OTEL_SDK_DISABLED=true"}, false, ""},
		{"json", []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1", "OTEL_EXPORTER_OTLP_PROTOCOL=http/json"}, false,
			`OTEL_EXPORTER_OTLP_PROTOCOL is "http/json"`},
		{"a timeout with a unit", []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1", "OTEL_EXPORTER_OTLP_TIMEOUT=5s"}, false,
			`OTEL_EXPORTER_OTLP_TIMEOUT is "5s"`},
		{"no scheme", []string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=user:geheim@h:4318"}, false, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT is not an address"},
		{"console", []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1", "OTEL_TRACES_EXPORTER=console"}, false, `OTEL_TRACES_EXPORTER is "console"`},
		{"none", []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1", "OTEL_TRACES_EXPORTER=none"}, false, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, pair := range test.env {
				name, value, _ := strings.Cut(pair, "=")
				t.Setenv(name, value)
			}
			o, err := telemetry.NewOTel(context.Background(), telemetry.OTelConfig{Warn: func(error) {}})
			if got := o != nil; got != test.wanted {
				t.Errorf("exports: %v", got)
			}
			if test.err == "" && err != nil || test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)) {
				t.Errorf("error %v, want %q", err, test.err)
			}
			if err != nil && strings.Contains(err.Error(), "geheim") {
				t.Errorf("the error tells a password: %v", err)
			}
			if o != nil {
				o.Shutdown(t.Context())
			}
		})
	}
}

func TestSecretsOfTheEnvironment(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20abcdefgh,x-team=blue")
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "https://user:geheim12@h")
	got := telemetry.OTelSecrets()
	for _, want := range []string{"abcdefgh", "Bearer%20abcdefgh", "geheim12"} {
		if !slices.Contains(got, want) {
			t.Errorf("%q lacks %q", got, want)
		}
	}
}
