package config_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-llm/sluice/gateway"
	"github.com/sluice-llm/sluice/internal/config"
)

func TestServeIsRead(t *testing.T) {
	f, err := config.Parse("x", []byte(`
upstreams:
  - {provider: openai, models: [gpt-4o]}
serve:
  listen: 127.0.0.1:9000
  allow_host: [edge.example.com, "10.0.0.7:80"]
  models: {small: gpt-4o}
  queue_timeout: 1m30s
  first_byte_timeout: 2m
  idle_timeout: 500ms
  total_timeout: 1h
  max_body_memory: 512 MiB
  early_200: 20s
  drain_timeout: 10s
  metrics: 127.0.0.1:9464
  tenants:
    - {name: ci, key_sha256: 05e7b6173290d3c09874a6b8f6ca15e1e12d25d02ef005e3d7189d02a808c7bb, weight: 0.5, priority: low, rpm: 60, tpm: 1000,
       concurrency: 4, max_cost_day: 2.5, max_cost_month: 50, models: [small, 'gpt-4o*'], max_queue: 20, max_wait: 30s}
  access_log: "-"
  events: events.jsonl
`))
	if err != nil {
		t.Fatal(err)
	}
	want := &config.Serve{
		Listen: "127.0.0.1:9000", Hosts: []string{"edge.example.com", "10.0.0.7:80"},
		Models:       map[string]string{"small": "gpt-4o"},
		QueueTimeout: 90 * time.Second, FirstByteTimeout: 2 * time.Minute,
		IdleTimeout: 500 * time.Millisecond, TotalTimeout: time.Hour,
		MaxBodyMemory: 512 << 20, Early200: 20 * time.Second,
		DrainTimeout: 10 * time.Second, Metrics: "127.0.0.1:9464",
		Tenants: []gateway.Tenant{{
			Name: "ci", KeySHA256: "05e7b6173290d3c09874a6b8f6ca15e1e12d25d02ef005e3d7189d02a808c7bb", Weight: 0.5, Priority: "low", RPM: 60, TPM: 1000,
			Concurrency: 4, MaxCostDay: 2.5, MaxCostMonth: 50, Models: []string{"small", "gpt-4o*"}, MaxQueue: 20, MaxWait: 30 * time.Second,
		}},
		AccessLog: "-", Events: "events.jsonl",
	}
	if diff := cmp.Diff(want, f.Serve); diff != "" {
		t.Error(diff)
	}
}

func TestWrongServesAreNamedByLineAndField(t *testing.T) {
	for text, want := range map[string]string{
		"listn: a":                         `x:3: unknown field "listn" (did you mean listen?)`,
		"listen: 8787":                     "x:3: serve.listen: want a host and a port",
		"listen: 127.0.0.1:http":           "x:3: serve.listen: want a host and a port",
		"listen: 127.0.0.1:70000":          "x:3: serve.listen: want a host and a port",
		"metrics: here":                    "x:3: serve.metrics: want a host and a port",
		"metrics: nonefoo:x":               "x:3: serve.metrics: want a host and a port",
		"allow_host: a":                    "x:3: serve.allow_host: want a list",
		"allow_host: [a, 'https://b']":     "x:3: serve.allow_host[1]: want a host name",
		"allow_host:\n    - a\n    - ''":   "x:5: serve.allow_host[1]: want a host name",
		"events: '-'":                      "x:3: serve.events: want a file",
		"access_log: [a]":                  "x:3: serve.access_log",
		"passthrough: [{path: /v1/files}]": "x:3: serve.passthrough[0].upstream: is missing",
		"passthrough: [{path: /v1/files, upstream: other}]":                      `x:3: serve.passthrough[0].upstream: no upstream is named "other"`,
		"passthrough: [{path: /v1/files/, upstream: openai}]":                    "x:3: serve.passthrough[0].path: want a path without",
		"passthrough: [{path: /v1/files, upstream: openai, method: get}]":        "x:3: serve.passthrough[0].method: want one of GET, ",
		"passthrough:\n    - {path: /v1/a, upstream: openai, method: 'CONNECT'}": "x:4: serve.passthrough[0].method: want one of GET, ",
		"models: [a]":                          "x:3: serve.models",
		"models:\n    a: gpt-4o\n    b: other": `x:5: serve.models.b: no upstream serves model "other"`,
		"models: {a: ''}":                      "x:3: serve.models.a: a model has no name",
		"queue_timeout: 30":                    "x:3: serve.queue_timeout: want a time above zero with its unit",
		"queue_timeout: -3s":                   "x:3: serve.queue_timeout: want a time above zero with its unit",
		"idle_timeout: [1s]":                   "x:3: serve.idle_timeout: want a time above zero with its unit",
		"quee_timeout: 3s":                     `x:3: unknown field "quee_timeout" (did you mean queue_timeout?)`,
		"drain_timeout: 0s":                    "x:3: serve.drain_timeout: want a time above zero with its unit",
		"max_body_memory: 64":                  "x:3: serve.max_body_memory: want a size above zero with its unit",
		"max_body_memory: 64MiBs":              "x:3: serve.max_body_memory: want a size above zero with its unit",
		"max_body_memory: 9000000000000GiB":    "x:3: serve.max_body_memory: want a size above zero with its unit",
		"idle_timeout: 1s\n  idle_timeout: 2s": "x:4: ",
	} {
		_, err := config.Parse("x", []byte("upstreams: [{provider: openai, models: [gpt-4o]}]\nserve:\n  "+text))
		if wrong, ok := errors.AsType[*config.Error](err); !ok || !strings.HasPrefix(wrong.Error(), want) {
			t.Errorf("%q: %v\nwant %s", text, err, want)
		}
	}
}

func TestWrongTenantsAreNamedByLineAndField(t *testing.T) {
	ci := "name: ci, key_sha256: " + strings.Repeat("ab", 32)
	for text, want := range map[string]string{
		"{name: ci}":                         "x:4: serve.tenants[1].key_sha256: want 64 hexadecimal digits",
		"{name: ci, key_sha256: abcd}":       "x:4: serve.tenants[1].key_sha256: want 64 hexadecimal digits",
		"{name: ci, key: abcd}":              `x:4: unknown field "key"`,
		"{name: a/b}":                        "x:4: serve.tenants[1].name: want 1 to 64 letters",
		"{" + ci + ", rpm: 0}":               "x:4: serve.tenants[1].rpm: is empty or zero",
		"{" + ci + ", rpm: -1}":              "x:4: serve.tenants[1].rpm: is below zero",
		"{" + ci + ", rpm: many}":            "x:4: serve.tenants[1].rpm: want a whole number",
		"{" + ci + ", concurency: 1}":        `x:4: unknown field "concurency" (did you mean concurrency?)`,
		"{" + ci + ", weight: 0}":            "x:4: serve.tenants[1].weight: is empty or zero",
		"{" + ci + ", weight: -1}":           "x:4: serve.tenants[1].weight: want a number above 0",
		"{" + ci + ", priority: urgent}":     "x:4: serve.tenants[1].priority: want low, normal, high or critical",
		"{" + ci + ", max_cost_day: -1}":     "x:4: serve.tenants[1].max_cost_day: want an amount of US dollars",
		"{" + ci + ", max_cost_month: 0}":    "x:4: serve.tenants[1].max_cost_month: is empty or zero",
		"{" + ci + ", max_cost_month: .inf}": "x:4: serve.tenants[1].max_cost_month: want an amount of US dollars",
		"{" + ci + ", models: []}":           "x:4: serve.tenants[1].models: the list is empty",
		"{" + ci + ", models: [gpt-*-mini]}": "x:4: serve.tenants[1].models[0]: want a model name",
		"{" + ci + ", models: [a, '']}":      "x:4: serve.tenants[1].models[1]: want a model name",
		"{" + ci + ", models: a}":            "x:4: serve.tenants[1].models: want a list",
		"{" + ci + ", max_wait: 30}":         "x:4: serve.tenants[1].max_wait: want a time above zero with its unit",
		"{" + ci + ", max_wait: soon}":       "x:4: serve.tenants[1].max_wait: want a time above zero with its unit",
		"{" + ci + "}\n    - {" + ci + "}":   "x:5: serve.tenants[2].name: another tenant is named ci",
		"\n      " + strings.Replace(ci, ", ", "\n      ", 1) + "\n      rpm: 0": "x:7: serve.tenants[1].rpm: is empty or zero",
	} {
		_, err := config.Parse("x", []byte("serve:\n  tenants:\n    - {name: first, key_sha256: "+strings.Repeat("cd", 32)+"}\n    - "+text))
		if wrong, ok := errors.AsType[*config.Error](err); !ok || !strings.HasPrefix(wrong.Error(), want) {
			t.Errorf("%q: %v\nwant %s", text, err, want)
		}
	}
}

func TestKeysAreInFilesOrInVariables(t *testing.T) {
	f, err := config.Parse("x", []byte("upstreams: [{provider: openai, key_file: /run/secrets/openai}]"))
	if err != nil || f.Upstreams[0].KeyFile != "/run/secrets/openai" {
		t.Errorf("%+v, %v", f.Upstreams, err)
	}
	_, err = config.Parse("x", []byte("upstreams:\n- provider: openai\n  key_env: A\n  key_file: b"))
	if err == nil || !strings.HasPrefix(err.Error(), "x:4: upstreams[0].key_file: key_env and key_file both") {
		t.Error(err)
	}
}

func TestErrorsFoundLaterAreOfTheirLineToo(t *testing.T) {
	f, err := config.Parse("x", []byte("limits: {rpm: 5}\nupstreams:\n- provider: openai\n  key_env: A\n"))
	if err != nil {
		t.Fatal(err)
	}
	plain := errors.New("gone")
	for field, want := range map[string]string{
		"upstreams[0].key_env":  "x:4: upstreams[0].key_env: gone",
		"upstreams[0].key_file": "x:3: upstreams[0].key_file: gone",
		"nowhere.at.all":        "gone",
	} {
		if got := f.At(field, plain).Error(); got != want {
			t.Errorf("%s: %s, want %s", field, got, want)
		}
	}
	if got := new(config.File).At("limits", plain); got != plain {
		t.Error(got)
	}
}
