//go:build unix

package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/sluice-llm/sluice/internal/config"
)

func TestNullDeviceIsAnEmptyFile(t *testing.T) {
	if file, err := config.Load(os.DevNull); err != nil || file.Limits != nil || len(file.Providers) > 0 {
		t.Errorf("%+v, %v", file, err)
	}
}

func TestPipesAndOtherDevicesAreRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sluice.yaml")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Skip(err)
	}
	for _, path := range []string{path, "/dev/zero"} {
		if _, err := config.Load(path); err == nil || !strings.Contains(err.Error(), "not a regular file") {
			t.Errorf("%s: %v", path, err)
		}
	}
}
