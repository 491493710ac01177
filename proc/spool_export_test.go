package proc

// Spool is what the tests of it reach.
type Spool struct{ *spool }

// NewSpool makes a spool.
func NewSpool(path string, most int64) (Spool, error) {
	s, err := newSpool(path, most)
	return Spool{s}, err
}

// Close ends it, and returns what a command's end needs of it.
func (s Spool) Close() ([]byte, error) { return s.close() }
