package cluster

// numbers is a set of task numbers, small where they are dense. The zero value is empty.
type numbers struct {
	pages map[int64]*[64]uint64 // by number / 4096
}

func (s *numbers) add(n int64) {
	if s.pages == nil {
		s.pages = map[int64]*[64]uint64{}
	}
	page := s.pages[n>>12]
	if page == nil {
		page = new([64]uint64)
		s.pages[n>>12] = page
	}
	page[n>>6&63] |= 1 << (n & 63)
}

func (s *numbers) has(n int64) bool {
	page := s.pages[n>>12]
	return page != nil && page[n>>6&63]&(1<<(n&63)) != 0
}
