//go:build !linux

package recording

import (
	"context"
	"errors"
)

// Record is for Linux alone.
func Record(context.Context, Config) (Recording, error) {
	return Recording{}, errors.ErrUnsupported
}
