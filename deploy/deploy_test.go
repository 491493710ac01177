//go:build full

// Package deploy_test looks whether what stands here fits the program: it may name nothing that the program does not have.
package deploy_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/sluice-llm/sluice/internal/cli"
)

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// program runs sluice and returns its standard output.
func program(t *testing.T, args ...string) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	if code := cli.Main(t.Context(), args, strings.NewReader(""), &stdout, &stderr); code != 0 {
		t.Fatalf("sluice %q: exit code %d\n%s", args, code, stderr.String())
	}
	return stdout.String()
}

func TestTheUnitAndTheImageStartCommandsThatThereAre(t *testing.T) {
	unit, image := read(t, "sluice.service"), read(t, "../Dockerfile")
	start := regexp.MustCompile(`(?m)^ExecStart=/usr/local/bin/sluice (.*)$`).FindStringSubmatch(unit)
	if start == nil {
		t.Fatal("the unit starts nothing")
	}
	commands := [][]string{strings.Fields(start[1])}
	for _, m := range regexp.MustCompile(`(?m)CMD (\[.*\])$`).FindAllStringSubmatch(image, -1) {
		var words []string
		if err := json.Unmarshal([]byte(m[1]), &words); err != nil {
			t.Fatal(err)
		}
		commands = append(commands, slices.DeleteFunc(words, func(w string) bool { return w == "/usr/local/bin/sluice" }))
	}
	if len(commands) != 2 {
		t.Errorf("%d commands, want the unit's and the image's", len(commands))
	}
	for _, c := range commands {
		names := slices.Clone(c)
		if i := slices.IndexFunc(c, func(word string) bool { return strings.HasPrefix(word, "-") }); i >= 0 {
			names = names[:i]
		}
		usage := "Usage: sluice " + strings.Join(names, " ") + " ["
		if help := program(t, append(c, "--help")...); !strings.Contains(help, usage) {
			t.Errorf("sluice %q is another command:\n%s", c, help)
		}
	}
}

// A directory of an unfinished release would stop the next one, which requires a new directory.
func TestAReleaseThatFailsLeavesNothingBehind(t *testing.T) {
	for _, name := range []string{"bash", "git"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skip(err)
		}
	}
	checkout, out := t.TempDir(), filepath.Join(t.TempDir(), "out")
	script := filepath.Join(checkout, "scripts", "release")
	if err := os.Mkdir(filepath.Dir(script), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(script, []byte(read(t, "../scripts/release")), 0o600); err != nil {
		t.Fatal(err)
	}
	if said, err := exec.Command("git", "init", "--quiet", checkout).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	said, err := exec.Command("bash", script, out).CombinedOutput()
	if err == nil || !strings.Contains(string(said), "changes that are not committed") {
		t.Errorf("%v: %s", err, said)
	}
	if _, err := os.Stat(out); err == nil {
		t.Error("the directory of the release is there")
	}
}

// A commit of which files are left out is no commit any more: the binary would say that it was modified.
func TestTheImageIsBuiltFromTheWholeCommit(t *testing.T) {
	ignored := strings.Fields(strings.NewReplacer("**/", "", "/", "").Replace(read(t, "../.gitignore")))
	for line := range strings.Lines(read(t, "../.dockerignore")) {
		line = strings.TrimSpace(line)
		name := strings.ReplaceAll(strings.TrimPrefix(line, "**/"), "/", "")
		if line != "" && !strings.HasPrefix(line, "#") && !slices.Contains(ignored, name) {
			t.Errorf(".dockerignore leaves out %s, and .gitignore does not", line)
		}
	}
}

// resource is what is looked at of what Kubernetes is given.
type resource struct {
	Kind     string `yaml:"kind"`
	Metadata struct{ Name string }
	Data     map[string]string `yaml:"data"`
	Spec     struct {
		Template struct {
			Spec struct {
				Containers []container `yaml:"containers"`
			} `yaml:"spec"`
		} `yaml:"template"`
	} `yaml:"spec"`
}

type container struct {
	Args  []string `yaml:"args"`
	Ports []struct {
		Port int `yaml:"containerPort"`
	} `yaml:"ports"`
	Startup   probe   `yaml:"startupProbe"`
	Liveness  probe   `yaml:"livenessProbe"`
	Readiness probe   `yaml:"readinessProbe"`
	Mounts    []mount `yaml:"volumeMounts"`
}

type mount struct {
	Path string `yaml:"mountPath"`
}

type probe struct {
	Get struct {
		Path    string              `yaml:"path"`
		Port    string              `yaml:"port"`
		Headers []map[string]string `yaml:"httpHeaders"`
	} `yaml:"httpGet"`
}

func resources(t *testing.T) map[string]resource {
	all := make(map[string]resource)
	for dec := yaml.NewDecoder(strings.NewReader(read(t, "kubernetes.yaml"))); ; {
		var r resource
		err := dec.Decode(&r)
		if err == io.EOF {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all[r.Kind] = r
	}
}

func TestTheSettingsInKubernetesAreGood(t *testing.T) {
	all := resources(t)
	settings := all["ConfigMap"].Data["sluice.yaml"]
	pod := all["Deployment"].Spec.Template.Spec
	if settings == "" || len(pod.Containers) != 1 {
		t.Fatal("there are no settings, or not one container")
	}
	c := pod.Containers[0]
	dir := t.TempDir()
	const secrets = "/run/secrets/sluice"
	if !slices.Contains(c.Mounts, mount{secrets}) || !strings.Contains(settings, secrets) {
		t.Errorf("%s is not mounted, or not of the settings", secrets)
	}
	at := filepath.Join(dir, filepath.FromSlash(secrets))
	if err := os.MkdirAll(at, 0o700); err != nil {
		t.Fatal(err)
	}
	settings = strings.ReplaceAll(settings, secrets, filepath.ToSlash(at))
	file := filepath.Join(dir, "sluice.yaml")
	for name, text := range map[string]string{file: settings, filepath.Join(dir, "run", "secrets", "sluice", "openai"): "sk-test\n"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	args := slices.Clone(c.Args)
	for i, arg := range args {
		if arg == "/etc/sluice/sluice.yaml" {
			args[i] = file
		}
	}
	var served struct {
		Listen string
		Hosts  []string
		Shared *struct{}
	}
	if err := json.Unmarshal([]byte(program(t, append(args, "--check", "--json")...)), &served); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(served.Hosts, all["Service"].Metadata.Name) || served.Shared == nil {
		t.Errorf("%+v is not addressed by the name of the Service, or shares nothing", served)
	}
	metrics := regexp.MustCompile(`metrics: (\S+)`).FindStringSubmatch(settings)
	for i, address := range []string{served.Listen, metrics[1]} {
		_, port, _ := net.SplitHostPort(address)
		if got := strconv.Itoa(c.Ports[i].Port); got != port {
			t.Errorf("the container's port is %s, and it listens on %s", got, address)
		}
	}
	for _, p := range []struct {
		probe
		path string
	}{{c.Startup, "/healthz"}, {c.Liveness, "/healthz"}, {c.Readiness, "/readyz"}} {
		if p.Get.Path != p.path || p.Get.Port != "http" || len(p.Get.Headers) != 1 || p.Get.Headers[0]["value"] != "localhost" {
			t.Errorf("a probe asks for %+v", p.Get)
		}
	}
}
