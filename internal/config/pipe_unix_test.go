//go:build unix

package config_test

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/sluice-llm/sluice/internal/config"
)

func TestPipesAreNotWaitedFor(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sluice.yaml")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Skip(err)
	}
	if _, err := config.Load(path); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("settings: %v", err)
	}
	if _, err := config.Load(path); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("limits: %v", err)
	}
}
