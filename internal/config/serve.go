package config

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"

	"github.com/sluice-llm/sluice/cluster"
	"github.com/sluice-llm/sluice/provider"
)

// Serve is what a gateway is told. The zero value tells nothing.
type Serve struct {
	Listen  string   `yaml:"listen"`
	Hosts   []string `yaml:"hosts"`
	Origins []string `yaml:"origins"`

	Models map[string]string `yaml:"models"` // names that models are asked for by, and what they stand for
	Prefer string            `yaml:"prefer"`

	Deadlines Deadlines `yaml:"deadlines"`
	Bodies    Bodies    `yaml:"bodies"`

	Routes      []Route       `yaml:"routes"`
	Passthrough []Passthrough `yaml:"passthrough"`

	DrainTimeout  Duration `yaml:"drain_timeout"`
	MetricsListen string   `yaml:"metrics_listen"`

	KeysFile  string `yaml:"keys_file"`  // of the clients
	AccessLog string `yaml:"access_log"` // - is standard output
	Events    string `yaml:"events"`     // a file that all events go to

	Shared     string `yaml:"shared"`      // URL of an engine by way of which quotas are shared
	FailClosed bool   `yaml:"fail_closed"` // calls wait while that is gone
}

// Deadlines are how long a call may take. Zero is not stated.
type Deadlines struct {
	Queue     Duration `yaml:"queue"`
	FirstByte Duration `yaml:"first_byte"`
	Idle      Duration `yaml:"idle"`
	Total     Duration `yaml:"total"`
}

// Bodies bound what is kept of requests. Zero is not stated.
type Bodies struct {
	Most        Size `yaml:"most"`
	MemoryTotal Size `yaml:"memory_total"` // of all requests together
}

// Route says how calls are handled whose path begins so. Of several the first that fits counts.
type Route struct {
	Path     string   `yaml:"path"`      // "" is all of them
	PassKey  bool     `yaml:"pass_key"`  // the client's own key goes upstream
	Early200 Duration `yaml:"early_200"` // a stream that waits so long begins, with comments. Zero is never
	DrainFor Duration `yaml:"drain_for"` // a stream whose client is gone is read on for so long. Zero is not at all
}

// Passthrough lets requests pass that are of no known API.
type Passthrough struct {
	Method   string `yaml:"method"` // "" is any
	Path     string `yaml:"path"`
	Upstream string `yaml:"upstream"`
}

// Duration is a time above zero that a file writes with its unit, such as 30s.
type Duration time.Duration

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
	for _, a := range []struct{ field, address string }{{"listen", s.Listen}, {"metrics_listen", s.MetricsListen}} {
		if err := checkAddress(a.address); err != nil {
			return a.field, err
		}
	}
	for i, host := range s.Hosts {
		if err := CheckHost(host); err != nil {
			return fmt.Sprintf("hosts[%d]", i), err
		}
	}
	for i, origin := range s.Origins {
		if err := CheckOrigin(origin); err != nil {
			return fmt.Sprintf("origins[%d]", i), err
		}
	}
	if field, err := f.checkPaths(); err != nil {
		return field, err
	}
	if err := new(provider.Preference).UnmarshalText([]byte(s.Prefer)); err != nil {
		return "prefer", err
	}
	if err := cluster.CheckURL(s.Shared); s.Shared != "" && err != nil {
		return "shared", err
	}
	if s.FailClosed && s.Shared == "" {
		return "fail_closed", errors.New("there is no shared: that could be gone")
	}
	if s.Events == "-" {
		return "events", errors.New("want a file")
	}
	if s.Bodies.MemoryTotal > 0 && s.Bodies.MemoryTotal < cmp.Or(s.Bodies.Most, 64<<20) {
		return "bodies.memory_total", errors.New("the longest body has no room: raise it, or lower bodies.most")
	}
	return f.checkAliases()
}

// CheckHost refuses what is no name that a gateway can be addressed by.
func CheckHost(host string) error {
	if host == "" || strings.ContainsFunc(host, func(r rune) bool { return notInName(r) && !strings.ContainsRune(":[]", r) }) {
		return errors.New("want a host's name, such as gateway.example.com, without https:// and path")
	}
	return nil
}

// CheckOrigin refuses what is no origin of pages.
func CheckOrigin(origin string) error {
	u, err := url.Parse(origin)
	if err != nil || u.Scheme == "" || u.Host == "" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" {
		return errors.New("want the origin of a page, such as https://app.example.com, without path")
	}
	return nil
}

// methods are those that requests may pass by.
var methods = [...]string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}

// checkPaths refuses routes and passthroughs that fit nothing.
func (f *File) checkPaths() (field string, err error) {
	for i, r := range f.Serve.Routes {
		if r.Path != "" && r.Path[0] != '/' {
			return fmt.Sprintf("routes[%d].path", i), errors.New("want a path that begins with a slash, such as /v1/messages")
		}
	}
	for i, p := range f.Serve.Passthrough {
		switch {
		case len(p.Path) < 2 || p.Path[0] != '/' || strings.HasSuffix(p.Path, "/"):
			return fmt.Sprintf("passthrough[%d].path", i), errors.New("want a path such as /v1/files, with no slash at its end")
		case p.Method != "" && !slices.Contains(methods[:], p.Method):
			return fmt.Sprintf("passthrough[%d].method", i), fmt.Errorf("want one of %s", strings.Join(methods[:], ", "))
		case p.Upstream == "":
			return fmt.Sprintf("passthrough[%d].upstream", i), errors.New("is missing: it is the name of the upstream that such requests are sent to")
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

// checkAddress refuses what cannot be listened at. "" is fine.
func checkAddress(address string) error {
	if address == "" {
		return nil
	}
	host, port, err := net.SplitHostPort(address)
	n, bad := strconv.ParseUint(port, 10, 16)
	if err != nil || bad != nil || n > 0xffff || strings.ContainsFunc(host, func(r rune) bool { return notInName(r) && !strings.ContainsRune(":%", r) }) {
		return errors.New("want a host and a port, such as 127.0.0.1:8787")
	}
	return nil
}
