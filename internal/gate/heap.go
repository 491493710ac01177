package gate

// heap is tenants of an order, the first by less at its head. It tells each its place.
type heap struct {
	tenants []*tenant
	less    func(a, b *tenant) bool
	place   func(q *tenant) *int
}

// first is the head, or nil.
func (h *heap) first() *tenant {
	if len(h.tenants) == 0 {
		return nil
	}
	return h.tenants[0]
}

func (h *heap) push(q *tenant) {
	h.tenants = append(h.tenants, q)
	*h.place(q) = len(h.tenants) - 1
	h.up(len(h.tenants) - 1)
}

// remove takes out the tenant at a place.
func (h *heap) remove(at int) {
	last := len(h.tenants) - 1
	h.swap(at, last)
	h.tenants[last] = nil
	h.tenants = h.tenants[:last]
	if at < last {
		h.fix(at)
	}
}

// fix moves the tenant at a place to where it belongs now.
func (h *heap) fix(at int) {
	if !h.up(at) {
		h.down(at)
	}
}

func (h *heap) up(at int) (moved bool) {
	for at > 0 {
		parent := (at - 1) / 2
		if !h.less(h.tenants[at], h.tenants[parent]) {
			return moved
		}
		h.swap(at, parent)
		at, moved = parent, true
	}
	return moved
}

func (h *heap) down(at int) {
	for {
		least := at
		for child := 2*at + 1; child <= 2*at+2 && child < len(h.tenants); child++ {
			if h.less(h.tenants[child], h.tenants[least]) {
				least = child
			}
		}
		if least == at {
			return
		}
		h.swap(at, least)
		at = least
	}
}

func (h *heap) swap(a, b int) {
	h.tenants[a], h.tenants[b] = h.tenants[b], h.tenants[a]
	*h.place(h.tenants[a]), *h.place(h.tenants[b]) = a, b
}
