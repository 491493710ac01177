package work

// Disk and File are where a journal's files are.
type (
	Disk = disk
	File = file
)

// On puts a journal on another disk than the system's.
func (c JournalConfig) On(d Disk) JournalConfig {
	c.disk = d
	return c
}

// SystemDisk is the system's disk.
func SystemDisk() Disk { return systemDisk{} }
