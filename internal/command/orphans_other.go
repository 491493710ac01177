//go:build !linux

package command

// orphans are what lost its parent: it goes to the first process, and nothing tells us of it.
type orphans struct{}

func (c *children) adopt()                 {}
func (c *children) disown()                {}
func (g *Guard) sweep(bool)                {}
func endMarked(string) (found, maybe bool) { return false, false }
