package gate

// tenantHeap is tenants of an order for container/heap. The first one by less is at its head. Each tenant knows its place.
type tenantHeap struct {
	tenants []*tenant
	less    func(a, b *tenant) bool
	place   func(q *tenant) *int
}

// first returns the head, or nil.
func (h *tenantHeap) first() *tenant {
	if len(h.tenants) == 0 {
		return nil
	}
	return h.tenants[0]
}

// Len returns the number of tenants.
func (h *tenantHeap) Len() int { return len(h.tenants) }

// Less compares the tenants at two places.
func (h *tenantHeap) Less(a, b int) bool { return h.less(h.tenants[a], h.tenants[b]) }

// Swap exchanges the tenants at two places.
func (h *tenantHeap) Swap(a, b int) {
	h.tenants[a], h.tenants[b] = h.tenants[b], h.tenants[a]
	*h.place(h.tenants[a]), *h.place(h.tenants[b]) = a, b
}

// Push appends a tenant.
func (h *tenantHeap) Push(q any) {
	h.tenants = append(h.tenants, q.(*tenant))
	*h.place(q.(*tenant)) = len(h.tenants) - 1
}

// Pop drops the last tenant.
func (h *tenantHeap) Pop() any {
	last := len(h.tenants) - 1
	h.tenants[last] = nil
	h.tenants = h.tenants[:last]
	return nil
}
