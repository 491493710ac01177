package config

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"

	"github.com/sluice-llm/sluice/cluster"
	"github.com/sluice-llm/sluice/gateway"
	"github.com/sluice-llm/sluice/provider"
)

// Serve is what a gateway is told. The zero value tells nothing.
type Serve struct {
	Listen string   `yaml:"listen"`
	Hosts  []string `yaml:"allow_host"`

	Models map[string]string `yaml:"models"` // names that models are asked for by, and what they stand for

	QueueTimeout     Duration `yaml:"queue_timeout"` // limits of the time that a request takes. Zero is not stated
	FirstByteTimeout Duration `yaml:"first_byte_timeout"`
	IdleTimeout      Duration `yaml:"idle_timeout"`
	TotalTimeout     Duration `yaml:"total_timeout"`

	MaxBodyMemory Size `yaml:"max_body_memory"` // of all requests together. Zero is not stated

	Early200    Duration      `yaml:"early_200"` // a stream without a response starts after this time, with comments. Zero is never
	Passthrough []Passthrough `yaml:"passthrough"`

	DrainTimeout Duration `yaml:"drain_timeout"`
	Metrics      string   `yaml:"metrics"`

	Tenants []Tenant `yaml:"tenants"` // clients with keys. None: no client needs a key

	AccessLog string `yaml:"access_log"` // - is standard output
	Events    string `yaml:"events"`     // a file that all events go to

	Redis      string `yaml:"redis"`       // URL of the Redis that shares limits
	FailClosed bool   `yaml:"fail_closed"` // calls wait while that is gone
}

// Tenant is a client of the gateway with its own key.
type Tenant struct {
	gateway.Tenant `yaml:",inline"`

	MaxWait Duration `yaml:"max_wait"` // is copied to Tenant
}

// Passthrough lets requests pass that are of no known API.
type Passthrough struct {
	Method   string `yaml:"method"` // "" is any
	Path     string `yaml:"path"`
	Upstream string `yaml:"upstream"`
}

// Duration is a time above zero that a file writes with its unit, such as 30s.
type Duration time.Duration

// MarshalText writes a duration as Go does.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalYAML reads a duration as Go writes it.
func (d *Duration) UnmarshalYAML(n ast.Node) error {
	text := ""
	if s, ok := n.(ast.ScalarNode); ok {
		text = fmt.Sprint(s.GetValue())
	}
	v, err := time.ParseDuration(text)
	if err != nil || v <= 0 {
		return &yaml.TypeError{DstType: reflect.TypeFor[Duration](), SrcType: reflect.TypeFor[string](), Token: n.GetToken()}
	}
	*d = Duration(v)
	return nil
}

// Size is a number of bytes above zero that a file writes with its unit, such as 64MiB.
type Size int64

// largestSize is more than any request has.
const largestSize = 1 << 40

var sizes = [...]struct {
	unit  string
	bytes int64
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"kB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"B", 1}}

// UnmarshalYAML reads a number and its unit: B, kB, MB, GB, KiB, MiB or GiB.
func (z *Size) UnmarshalYAML(n ast.Node) error {
	text := ""
	if s, ok := n.(ast.ScalarNode); ok {
		text = fmt.Sprint(s.GetValue())
	}
	for _, size := range sizes {
		number, ok := strings.CutSuffix(text, size.unit)
		if !ok {
			continue
		}
		v, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64)
		if err == nil && v > 0 && v <= largestSize/size.bytes {
			*z = Size(v * size.bytes)
			return nil
		}
	}
	return &yaml.TypeError{DstType: reflect.TypeFor[Size](), SrcType: reflect.TypeFor[string](), Token: n.GetToken()}
}

// checkServe refuses what no gateway can be told. The error is about the returned field.
func (f *File) checkServe() (field string, err error) {
	s := f.Serve
	if s == nil {
		return "", nil
	}
	if err := CheckAddress(s.Listen); s.Listen != "" && err != nil {
		return "listen", err
	}
	if err := CheckAddress(s.Metrics); s.Metrics != "" && s.Metrics != "none" && err != nil {
		return "metrics", err
	}
	for i, host := range s.Hosts {
		if err := CheckHost(host); err != nil {
			return fmt.Sprintf("allow_host[%d]", i), err
		}
	}
	if field, err := f.checkPassthrough(); err != nil {
		return field, err
	}
	if err := cluster.CheckURL(s.Redis); s.Redis != "" && err != nil {
		return "redis", err
	}
	if s.FailClosed && s.Redis == "" {
		return "fail_closed", errors.New("needs redis")
	}
	if s.Events == "-" {
		return "events", errors.New("want a file")
	}
	if field, err := f.checkAliases(); err != nil {
		return field, err
	}
	return f.checkTenants()
}

// checkTenants completes the tenants and refuses what cannot be, such as limits of 0, which would be no limits.
func (f *File) checkTenants() (field string, err error) {
	tenants := make([]gateway.Tenant, len(f.Serve.Tenants))
	for i := range tenants {
		t := &f.Serve.Tenants[i]
		t.Tenant.MaxWait = time.Duration(t.MaxWait)
		tenants[i] = t.Tenant
		v := reflect.ValueOf(t.Tenant)
		for _, part := range reflect.VisibleFields(v.Type()) {
			name, _, _ := strings.Cut(part.Tag.Get("yaml"), ",")
			field := fmt.Sprintf("tenants[%d].%s", i, name)
			switch n := f.documents[0].node("serve." + field); {
			case n == nil:
			case v.FieldByIndex(part.Index).IsZero():
				return field, errors.New("is empty or zero: omit the field to use the default")
			case part.Type.Kind() == reflect.Int && n.Type() == ast.FloatType:
				return field, errors.New("want a whole number") // the parser would drop the fraction
			}
		}
	}
	if field, err := gateway.CheckTenants(tenants); err != nil {
		return "tenants" + field, err
	}
	return "", nil
}

// CheckHost refuses what is no name that a gateway can be addressed by.
func CheckHost(host string) error {
	if host == "" || strings.ContainsFunc(host, func(r rune) bool { return notInName(r) && !strings.ContainsRune(":[]", r) }) {
		return errors.New("want a host name without https:// or a path, such as gateway.example.com")
	}
	return nil
}

// methods are those that requests may pass by.
var methods = [...]string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}

// checkPassthrough refuses passthroughs that fit nothing.
func (f *File) checkPassthrough() (field string, err error) {
	for i, p := range f.Serve.Passthrough {
		switch {
		case len(p.Path) < 2 || p.Path[0] != '/' || strings.HasSuffix(p.Path, "/"):
			return fmt.Sprintf("passthrough[%d].path", i), errors.New("want a path without a slash at the end, such as /v1/files")
		case p.Method != "" && !slices.Contains(methods[:], p.Method):
			return fmt.Sprintf("passthrough[%d].method", i), fmt.Errorf("want one of %s", strings.Join(methods[:], ", "))
		case p.Upstream == "":
			return fmt.Sprintf("passthrough[%d].upstream", i), errors.New("is missing: set the name of the upstream that gets requests with this path")
		case len(f.Upstreams) > 0 && !slices.ContainsFunc(f.Upstreams, func(up Upstream) bool { return up.Name == p.Upstream }):
			return fmt.Sprintf("passthrough[%d].upstream", i), fmt.Errorf("no upstream is named %q", p.Upstream)
		}
	}
	return "", nil
}

// checkAliases refuses names of models that stand for what no upstream serves.
func (f *File) checkAliases() (field string, err error) {
	for _, alias := range slices.Sorted(maps.Keys(f.Serve.Models)) {
		model := f.Serve.Models[alias]
		field := "models." + alias
		if alias == "" || model == "" {
			return field, errors.New("a model has no name")
		}
		if len(f.Upstreams) > 0 && !slices.ContainsFunc(f.Upstreams, func(up Upstream) bool { return up.serves(model, f.Registry()) }) {
			return field, fmt.Errorf("no upstream serves model %q", model)
		}
	}
	return "", nil
}

// serves reports whether the upstream serves a model that is asked for by that name.
func (up *Upstream) serves(model string, known *provider.Registry) bool {
	if up.Models != nil {
		return up.Models[model] != ""
	}
	p, ok := known.Recognise(model)
	return ok && p.Name == up.Provider
}

// CheckAddress refuses what cannot be listened at.
func CheckAddress(address string) error {
	host, port, err := net.SplitHostPort(address)
	n, bad := strconv.ParseUint(port, 10, 16)
	if err != nil || bad != nil || n > 0xffff || strings.ContainsFunc(host, func(r rune) bool { return notInName(r) && !strings.ContainsRune(":%", r) }) {
		return errors.New("want a host and a port, such as 127.0.0.1:8787")
	}
	return nil
}
