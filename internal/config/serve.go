package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-llm/sluice/gateway"
	"github.com/sluice-llm/sluice/provider"
)

// Serve are the settings of a gateway. A zero field is not set. The tag fixed marks a field that only a restart changes, and the tag
// output a path of a file that the gateway writes.
type Serve struct {
	Listen string   `yaml:"listen" check:"address" fixed:"true"`
	Hosts  []string `yaml:"allow_host" check:"host"`

	Models map[string]string `yaml:"models"` // models by the names that clients use

	QueueTimeout     time.Duration `yaml:"queue_timeout"` // limits of the time of a request
	FirstByteTimeout time.Duration `yaml:"first_byte_timeout"`
	IdleTimeout      time.Duration `yaml:"idle_timeout"`
	TotalTimeout     time.Duration `yaml:"total_timeout"`

	MaxBodyMemory Size `yaml:"max_body_memory"` // limit for all requests together

	Early200    time.Duration         `yaml:"early_200"` // time after which a stream without a response starts with comments
	Passthrough []gateway.Passthrough `yaml:"passthrough"`

	DrainTimeout time.Duration `yaml:"drain_timeout"`
	Metrics      string        `yaml:"metrics" check:"metrics" fixed:"true"`

	Tenants []gateway.Tenant `yaml:"tenants"` // clients with keys. None: no client needs a key

	AccessLog string `yaml:"access_log" fixed:"true" output:"true"`          // - is standard output
	Events    string `yaml:"events" check:"file" fixed:"true" output:"true"` // file of all events

	Redis      string `yaml:"redis" check:"redis" fixed:"true"` // URL of the Redis that shares limits
	FailClosed bool   `yaml:"fail_closed" fixed:"true"`         // requests wait while Redis does not respond
}

// Duration is a time above zero with its unit, such as 30s.
type Duration time.Duration

// MarshalText returns the duration in the format of Go.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText reads the format of Go.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	*d = Duration(v)
	return wrongIf(err != nil || v <= 0, "want a time above zero with its unit, such as 30s or 5m")
}

// Size is a number of bytes above zero with its unit, such as 64MiB.
type Size int64

// largestSize is more than any request has.
const largestSize = 1 << 40

var units = map[string]int64{"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}

// UnmarshalText reads a whole number and a unit.
func (z *Size) UnmarshalText(text []byte) error {
	unit := strings.TrimLeft(string(text), "0123456789")
	n, err := strconv.ParseInt(strings.TrimSuffix(string(text), unit), 10, 64)
	bytes, ok := units[strings.TrimSpace(unit)]
	*z = Size(n * bytes)
	return wrongIf(!ok || err != nil || n < 1 || n > largestSize/bytes, "want a size above zero with its unit, such as 64MiB")
}

// methods are the HTTP methods of a passthrough.
var methods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}

// checkServe refuses settings of a gateway that do not fit each other or the upstreams. The error is about the returned field.
func (f *File) checkServe() (field string, err error) {
	s := f.Serve
	if s == nil {
		return "", nil
	}
	if s.FailClosed && s.Redis == "" {
		return "serve.fail_closed", errors.New("needs redis")
	}
	for i, p := range s.Passthrough {
		named := func(up Upstream) bool { return up.Name == p.Upstream }
		field := fmt.Sprintf("serve.passthrough[%d].", i)
		switch {
		case len(p.Path) < 2 || p.Path[0] != '/' || strings.HasSuffix(p.Path, "/"):
			return field + "path", errors.New("want a path without a slash at the end, such as /v1/files")
		case p.Method != "" && !slices.Contains(methods, p.Method):
			return field + "method", fmt.Errorf("want one of %s", strings.Join(methods, ", "))
		case p.Upstream == "":
			return field + "upstream", errors.New("is missing: set the name of the upstream that gets requests with this path")
		case len(f.Upstreams) > 0 && !slices.ContainsFunc(f.Upstreams, named):
			return field + "upstream", fmt.Errorf("no upstream is named %q", p.Upstream)
		}
	}
	for _, alias := range slices.Sorted(maps.Keys(s.Models)) {
		model := s.Models[alias]
		serves := func(up Upstream) bool { return up.serves(model, f.Registry()) }
		switch {
		case alias == "" || model == "":
			return "serve.models." + alias, errors.New("a model has no name")
		case len(f.Upstreams) > 0 && !slices.ContainsFunc(f.Upstreams, serves):
			return "serve.models." + alias, fmt.Errorf("no upstream serves model %q", model)
		}
	}
	field, err = gateway.CheckTenants(s.Tenants)
	return "serve.tenants" + field, err
}

// serves reports whether the upstream serves a model that is requested by that name.
func (up *Upstream) serves(model string, known *provider.Registry) bool {
	if up.Models != nil {
		return up.Models[model] != ""
	}
	p, ok := known.Recognise(model)
	return ok && p.Name == up.Provider
}
