package command

// Unfinished judges the kernel's line on a process.
var Unfinished = unfinished

// Becoming reports whether a process is on its way to be another program.
func Becoming(pid int) bool {
	_, becoming, _ := markOf(pid)
	return becoming
}
