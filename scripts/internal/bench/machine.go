package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"github.com/sluice-llm/sluice/internal/command"
)

// Machine is where something was measured.
type Machine struct {
	CPU   string `json:"cpu"`
	Cores int    `json:"cores"`
	Go    string `json:"go"`
	OS    string `json:"os"`
}

// String is as the page says it.
func (m Machine) String() string {
	return fmt.Sprintf("%s, %d cores, %s, %s", m.CPU, m.Cores, m.Go, m.OS)
}

// thisMachine describes the one that this runs on.
func thisMachine() Machine {
	m := Machine{CPU: "unknown processor", Cores: runtime.NumCPU(), Go: runtime.Version(), OS: runtime.GOOS + "/" + runtime.GOARCH}
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return m // only Linux has it
	}
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			m.CPU = strings.TrimSpace(value)
			break
		}
	}
	return m
}

// load is the machine's load over one minute, or 0 where the system does not say.
func load() float64 {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(text), " ")
	v, _ := strconv.ParseFloat(first, 64)
	return v
}

// commit is that of the checkout, with a + behind it where source has changed since: the page and its book do not count.
func commit(ctx context.Context, root string) string {
	git := func(args ...string) (string, error) {
		var out strings.Builder
		_, err := command.Run(ctx, command.Spec{Args: append([]string{"git"}, args...), Dir: root, Env: os.Environ(), Stdout: &out})
		return strings.TrimSpace(out.String()), err
	}
	id, err := git("rev-parse", "--short=10", "HEAD")
	if err != nil {
		return "an unknown commit"
	}
	if changed, err := git("status", "--porcelain", "--", ".", ":!docs"); err != nil || changed != "" {
		id += "+"
	}
	return id
}

// home is an empty directory as a home of its own, with empty caches, and how it is removed. Modules come from where GOPROXY says.
func home() (env []string, remove func() error, err error) {
	dir, err := os.MkdirTemp("", "sluice-bench-home-")
	if err != nil {
		return nil, nil, err
	}
	remove = func() error {
		// Modules are kept in directories that may not be written to.
		walk := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				return os.Chmod(path, 0o700)
			}
			return err
		})
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
		return walk
	}
	return []string{"HOME=" + dir, "GOPATH=" + filepath.Join(dir, "go"), "GOCACHE=" + filepath.Join(dir, "cache"),
		"GOMODCACHE=" + filepath.Join(dir, "go", "pkg", "mod"), "XDG_STATE_HOME=" + filepath.Join(dir, "state")}, remove, nil
}
