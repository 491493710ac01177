package config_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-llm/sluice/internal/config"
)

func TestServeIsRead(t *testing.T) {
	t.Setenv("EDGE_HOST", "edge.example.com")
	f, err := config.Parse("x", []byte(`
upstreams:
  - {provider: openai, models: [gpt-4o]}
serve:
  listen: 127.0.0.1:9000
  hosts: ["${EDGE_HOST}", "10.0.0.7:80"]
  origins: [https://app.example.com, "http://localhost:3000/"]
  models: {small: gpt-4o}
  prefer: cost
  deadlines: {queue: 1m30s, first_byte: 2m, idle: 500ms, total: 1h}
  bodies: {most: 512 KiB, memory_total: 1GiB}
  drain_timeout: 10s
  metrics_listen: 127.0.0.1:9464
  keys_file: keys.json
  access_log: "-"
  events: events.jsonl
`))
	if err != nil {
		t.Fatal(err)
	}
	want := &config.Serve{
		Listen: "127.0.0.1:9000", Hosts: []string{"edge.example.com", "10.0.0.7:80"},
		Origins: []string{"https://app.example.com", "http://localhost:3000/"}, Models: map[string]string{"small": "gpt-4o"}, Prefer: "cost",
		Deadlines: config.Deadlines{
			Queue: config.Duration(90 * time.Second), FirstByte: config.Duration(2 * time.Minute),
			Idle: config.Duration(500 * time.Millisecond), Total: config.Duration(time.Hour),
		},
		Bodies:       config.Bodies{Most: 512 << 10, MemoryTotal: 1 << 30},
		DrainTimeout: config.Duration(10 * time.Second), MetricsListen: "127.0.0.1:9464",
		KeysFile: "keys.json", AccessLog: "-", Events: "events.jsonl",
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
		"metrics_listen: here":             "x:3: serve.metrics_listen: want a host and a port",
		"hosts: a":                         "x:3: serve.hosts: want a list",
		"hosts: [a, 'https://b']":          "x:3: serve.hosts[1]: want a host's name",
		"hosts:\n    - a\n    - ''":        "x:5: serve.hosts[1]: want a host's name",
		"origins: [app.example.com]":       "x:3: serve.origins[0]: want the origin of a page",
		"origins: ['https://a/path']":      "x:3: serve.origins[0]: want the origin of a page",
		"events: '-'":                      "x:3: serve.events: want a file",
		"access_log: [a]":                  "x:3: serve.access_log",
		"prefer: fastest":                  `x:3: serve.prefer: unknown preference "fastest"`,
		"passthrough: [{path: /v1/files}]": "x:3: serve.passthrough[0].upstream: is missing",
		"passthrough: [{path: /v1/files, upstream: other}]":                      `x:3: serve.passthrough[0].upstream: no upstream is named "other"`,
		"passthrough: [{path: /v1/files/, upstream: openai}]":                    "x:3: serve.passthrough[0].path: want a path such as",
		"passthrough: [{path: /v1/files, upstream: openai, method: get}]":        "x:3: serve.passthrough[0].method: want one of GET, ",
		"passthrough:\n    - {path: /v1/a, upstream: openai, method: 'CONNECT'}": "x:4: serve.passthrough[0].method: want one of GET, ",
		"models: [a]":                                    "x:3: serve.models",
		"models:\n    a: gpt-4o\n    b: other":           `x:5: serve.models.b: no upstream serves model "other"`,
		"models: {a: ''}":                                "x:3: serve.models.a: a model has no name",
		"deadlines: {queue: 30}":                         "x:3: serve.deadlines.queue: want a time above zero with its unit",
		"deadlines: {queue: -3s}":                        "x:3: serve.deadlines.queue: want a time above zero with its unit",
		"deadlines: {idle: [1s]}":                        "x:3: serve.deadlines.idle: want a time above zero with its unit",
		"deadlines: {quee: 3s}":                          `x:3: unknown field "quee" (did you mean queue?)`,
		"drain_timeout: 0s":                              "x:3: serve.drain_timeout: want a time above zero with its unit",
		"bodies: {most: 64}":                             "x:3: serve.bodies.most: want a size above zero with its unit",
		"bodies: {most: 64MiBs}":                         "x:3: serve.bodies.most: want a size above zero with its unit",
		"bodies: {most: 9000000000000GiB}":               "x:3: serve.bodies.most: want a size above zero with its unit",
		"bodies: {memory_total: 1MiB}":                   "x:3: serve.bodies.memory_total: the longest body has no room",
		"bodies:\n    most: 1MiB\n    most: 2MiB":        "x:5: ",
		"hosts: ['${NOT_SET_ANYWHERE}']":                 "x:3: serve.hosts[0]: NOT_SET_ANYWHERE is not set in the environment",
		"hosts: ['${not a name}']":                       "x:3: serve.hosts[0]: what stands in ${ } is not the name of a variable",
		"hosts: ['${NOT_CLOSED']":                        "x:3: serve.hosts[0]: what stands in ${ } is not the name of a variable",
		"'${EDGE_HOST}': a":                              `x:3: unknown field "${EDGE_HOST}"`,
		"deadlines:\n    queue: 1m\n    idle: ${EDGE}\n": "x:5: serve.deadlines.idle: EDGE is not set in the environment",
	} {
		_, err := config.Parse("x", []byte("upstreams: [{provider: openai, models: [gpt-4o]}]\nserve:\n  "+text))
		if wrong, ok := errors.AsType[*config.Error](err); !ok || !strings.HasPrefix(wrong.Error(), want) {
			t.Errorf("%q: %v\nwant %s", text, err, want)
		}
	}
}

func TestLimitsHoldNoServe(t *testing.T) {
	if _, err := config.ParseLimits("x", []byte("limits: {rpm: 5}\nserve: {listen: '127.0.0.1:1'}")); err == nil || !strings.HasPrefix(err.Error(), "x:2: serve: ") {
		t.Errorf("%v", err)
	}
}

func TestVariablesStandInTexts(t *testing.T) {
	t.Setenv("HOUSE", "house.example.com")
	t.Setenv("DEPLOYED", "llama: [70b]") // signs of YAML are text
	t.Setenv("NOTHING", "")
	f, err := config.Parse("x", []byte(`
upstreams:
  - provider: vllm
    base_url: "https://${HOUSE}/${NOTHING}v1"
    models: {llama: "${DEPLOYED}", plain: "$${DEPLOYED}", "${HOUSE}": a, dollar: $1, "on $HOUSE": "a$"}
`))
	if err != nil {
		t.Fatal(err)
	}
	up := f.Upstreams[0]
	want := config.Models{"llama": "llama: [70b]", "plain": "${DEPLOYED}", "${HOUSE}": "a", "dollar": "$1", "on $HOUSE": "a$"}
	if up.BaseURL != "https://house.example.com/v1" || cmp.Diff(want, up.Models) != "" {
		t.Errorf("%+v", up)
	}
	if got := f.Variables().Mask("dial house.example.com"); got != "dial ${HOUSE}" {
		t.Error(got)
	}
}

// Names are printed everywhere, and so is nothing that a variable holds.
func TestVariablesStandInNoNames(t *testing.T) {
	const secret = "hidden-value-77"
	t.Setenv("HIDDEN", secret)
	for _, text := range []string{
		"upstreams: [{provider: '${HIDDEN}'}]", "upstreams: [{provider: openai, name: '${HIDDEN}'}]", "upstreams: [{provider: openai, account: '${HIDDEN}'}]",
		"upstreams: [{provider: openai, key_env: '${HIDDEN}'}]", "upstreams: [{provider: openai, key_env: ['${HIDDEN}']}]",
		"upstreams: [{provider: openai, limits: {rpm: '${HIDDEN}'}}]", "upstreams: [{provider: openai, base_url: '${HIDDEN}'}]",
		"upstreams: [{provider: openai, base_url: 'ftp://${HIDDEN}'}]", "upstreams: [{provider: openai, models: '${HIDDEN}'}]",
		"upstreams: [{provider: openai, price_in: '${HIDDEN}', price_out: 1}]", "serve: {prefer: '${HIDDEN}'}", "serve: {listen: '${HIDDEN}'}",
		"serve: {drain_timeout: '${HIDDEN}'}", "serve: {bodies: {most: '${HIDDEN}'}}", "serve: {hosts: ['/${HIDDEN}']}", "serve: {origins: ['${HIDDEN}']}",
		"upstreams: [{provider: openai, models: [a]}]\nserve: {models: {a: '${HIDDEN}'}}", "serve: {hosts: '${HIDDEN}'}", "serve: ${HIDDEN}",
		"upstreams: [{provider: openai, models: {a: b}, name: x}]\nserve: {models: {a: |-\n  ${HIDDEN}\n}}",
	} {
		_, err := config.Parse("x", []byte(text))
		if err == nil || strings.Contains(err.Error(), secret) || strings.Contains(err.Error(), "hidden-value") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestKeysAreInFilesOrInVariables(t *testing.T) {
	f, err := config.Parse("x", []byte("upstreams: [{provider: openai, key_file: /run/secrets/openai}]"))
	if err != nil || f.Upstreams[0].KeyFile != "/run/secrets/openai" {
		t.Errorf("%+v, %v", f.Upstreams, err)
	}
	_, err = config.Parse("x", []byte("upstreams:\n- provider: openai\n  key_env: A\n  key_file: b"))
	if err == nil || !strings.HasPrefix(err.Error(), "x:4: upstreams[0].key_file: both key_env and key_file") {
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
