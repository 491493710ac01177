//go:build !unix

package stress

import "errors"

// canStop says that processes cannot be stopped here.
const canStop = false

func (c *child) stop() error   { return errors.ErrUnsupported }
func (c *child) resume() error { return errors.ErrUnsupported }
