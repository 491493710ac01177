//go:build unix

package config_test

import (
	"os"
	"testing"

	"github.com/sluice-llm/sluice/internal/config"
)

func TestNullDeviceIsAnEmptyFile(t *testing.T) {
	if file, err := config.Load(os.DevNull); err != nil || file.Limits != nil || len(file.Providers) > 0 {
		t.Errorf("%+v, %v", file, err)
	}
	if _, err := config.Load("/dev/zero"); err == nil {
		t.Error("a device without an end is read")
	}
}
