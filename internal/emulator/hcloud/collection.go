package hcloud

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// collection holds the resources of one kind.
type collection[T any] struct {
	name, plural string // server, servers
	rows         map[int64]*T
	head         func(*T) head
	busy         busy
	filter       func(T, url.Values) bool     // of a list, beside name and labels
	create       func(*call) (any, error)     // nil: the API has no such call
	update       func(*call, *T) error        // what a PUT changes beside name and labels
	remove       func(*call, *T) (any, error) // an answer, or nil for 204
	verbs        map[string]verb[T]           // POST …/actions/<verb>
}

// busy is what a kind does with a call while an action is running on the resource.
type busy int

const (
	refuses   busy = iota // 423 locked
	conflicts             // 409 conflict, after which clients repeat the call
	queues                // the call's own action waits
)

// verb is an action on a resource. Its answer is 201.
type verb[T any] func(*call, *T) (any, error)

// head points to what resources have in common; nil, what a kind lacks.
type head struct {
	id        *int64
	name      *string
	labels    *map[string]string
	created   *time.Time
	protected *bool
}

// reference names a resource: server 42.
type reference struct {
	kind string
	id   int64
}

func sorted[T any](rows map[int64]*T) []*T {
	var all []*T
	for _, id := range slices.Sorted(maps.Keys(rows)) {
		all = append(all, rows[id])
	}
	return all
}

// add gives a resource its id and keeps it.
func (k *collection[T]) add(s *Server, row *T) head {
	s.lastID++
	h := k.head(row)
	*h.id = s.lastID
	if h.created != nil {
		*h.created = time.Now().UTC().Truncate(time.Second)
	}
	if h.labels != nil && *h.labels == nil {
		*h.labels = map[string]string{}
	}
	k.rows[*h.id] = row
	return h
}

func (k *collection[T]) ref(row *T) reference { return reference{k.name, *k.head(row).id} }

// find returns the resource with an id that a request names.
func (k *collection[T]) find(id int64) (*T, error) {
	if row := k.rows[id]; row != nil {
		return row, nil
	}
	return nil, fail(http.StatusNotFound, "not_found", "%s with ID '%d' not found", k.name, id)
}

// free returns an error if the name is not valid or another resource of the kind has it.
func (k *collection[T]) free(name string, self int64) error {
	if name == "" {
		return invalid("name", "Missing data for required field.")
	}
	for id, row := range k.rows {
		if h := k.head(row); h.name != nil && *h.name == name && id != self {
			return fail(http.StatusConflict, "uniqueness_error", "%s name is already used", k.name)
		}
	}
	return nil
}

// room returns an error if a new resource exceeds the project's limit.
func (k *collection[T]) room(s *Server) error {
	if most, limited := s.config.Quota[k.plural]; limited && len(k.rows) >= most {
		err := fail(http.StatusForbidden, "resource_limit_exceeded", "%s limit exceeded", k.name)
		err.details = map[string]any{"limits": []any{map[string]any{"name": k.name + "_limit"}}}
		return err
	}
	return nil
}

// admit checks a new resource's name and labels, and the project's limit.
func (k *collection[T]) admit(c *call, name string, labels *map[string]string) (map[string]string, error) {
	if err := cmp.Or(k.free(name, 0), checkLabels(labels)); err != nil {
		return nil, err
	}
	if labels == nil {
		labels = &map[string]string{}
	}
	return maps.Clone(*labels), k.room(c.s)
}

// on wraps a handler of one resource.
func (k *collection[T]) on(handle func(*call, *T) (any, error)) handler {
	return func(c *call) (any, error) {
		id, err := strconv.ParseInt(c.r.PathValue("id"), 10, 64)
		if err != nil {
			return nil, fail(http.StatusNotFound, "not_found", "%s not found", k.name)
		}
		row, err := k.find(id)
		if err != nil {
			return nil, err
		}
		return handle(c, row)
	}
}

// unlocked wraps a handler of a resource on which an action may be running.
func (k *collection[T]) unlocked(handle func(*call, *T) (any, error)) func(*call, *T) (any, error) {
	return func(c *call, row *T) (any, error) {
		switch running := c.s.locks[k.ref(row)]; {
		case running && k.busy == conflicts:
			return nil, fail(http.StatusConflict, "conflict", "%s has changed during the request", k.name)
		case running && k.busy == refuses:
			return nil, fail(http.StatusLocked, "locked", "%s is locked", k.name)
		}
		return handle(c, row)
	}
}

// serve registers the calls of a collection.
func serve[T any](s *Server, k *collection[T]) {
	base := "/v1/" + k.plural
	s.handle("GET "+base, k.list)
	s.handle("GET "+base+"/{id}", k.on(func(_ *call, row *T) (any, error) {
		return map[string]any{k.name: row}, nil
	}))
	if k.remove == nil {
		return // read-only
	}
	if k.create != nil {
		s.handle("POST "+base, k.create)
	}
	s.handle("PUT "+base+"/{id}", k.on(k.change))
	s.handle("DELETE "+base+"/{id}", k.on(k.unlocked(func(c *call, row *T) (any, error) {
		if p := k.head(row).protected; p != nil && *p {
			return nil, fail(http.StatusLocked, "protected", "%s deletion is protected", k.name)
		}
		return k.remove(c, row)
	})))
	if h := k.head(new(T)); h.protected != nil {
		k.verbs["change_protection"] = k.protect
	}
	s.handle("GET "+base+"/{id}/actions", k.on(func(c *call, row *T) (any, error) {
		return c.s.listActions(c, k.ref(row))
	}))
	for name, do := range k.verbs {
		s.handle("POST "+base+"/{id}/actions/"+name, k.on(k.unlocked(do)))
	}
}

func (k *collection[T]) change(c *call, row *T) (any, error) {
	in, err := decode[struct {
		Name   *string            `json:"name"`
		Labels *map[string]string `json:"labels"`
	}](c)
	h := k.head(row)
	if err == nil {
		err = checkLabels(in.Labels)
	}
	if err == nil && in.Name != nil && h.name != nil {
		if err = k.free(*in.Name, *h.id); err == nil {
			*h.name = *in.Name
		}
	}
	if err == nil && k.update != nil {
		err = k.update(c, row)
	}
	if err != nil {
		return nil, err
	}
	if in.Labels != nil {
		*h.labels = *in.Labels
	}
	return map[string]any{k.name: row}, nil
}

func (k *collection[T]) protect(c *call, row *T) (any, error) {
	in, err := decode[struct{ Delete *bool }](c)
	if err != nil {
		return nil, err
	}
	return c.act("change_protection", k.ref(row), func() {
		if in.Delete != nil {
			*k.head(row).protected = *in.Delete
		}
	}), nil
}

// list answers with one page of what the query's name, label_selector, id and the kind's own filter leave.
func (k *collection[T]) list(c *call) (any, error) {
	query := c.r.URL.Query()
	selector, err := parseSelector(query.Get("label_selector"))
	if err != nil {
		return nil, err
	}
	rows := []*T{}
	for _, row := range sorted(k.rows) {
		h := k.head(row)
		named := !query.Has("name") || h.name != nil && *h.name == query.Get("name")
		labelled := h.labels == nil && len(selector) == 0 || h.labels != nil && selector.matches(*h.labels)
		if named && labelled && (k.filter == nil || k.filter(*row, query)) {
			rows = append(rows, row)
		}
	}
	if err := k.sort(rows, query["sort"]); err != nil {
		return nil, err
	}
	return paged(c, k.plural, rows)
}

func (k *collection[T]) sort(rows []*T, by []string) error {
	for _, key := range slices.Backward(by) {
		field, direction, _ := strings.Cut(key, ":")
		compare, known := map[string]func(a, b head) int{
			"id":      func(a, b head) int { return cmp.Compare(*a.id, *b.id) },
			"name":    func(a, b head) int { return cmp.Compare(*a.name, *b.name) },
			"created": func(a, b head) int { return a.created.Compare(*b.created) },
		}[field]
		if !known || direction != "" && direction != "asc" && direction != "desc" {
			return invalid("sort", "Invalid sort field.")
		}
		slices.SortStableFunc(rows, func(a, b *T) int {
			if direction == "desc" {
				a, b = b, a
			}
			return compare(k.head(a), k.head(b))
		})
	}
	return nil
}

// paged cuts a page out of rows, with meta.pagination and a Link header.
func paged[T any](c *call, plural string, rows []T) (any, error) {
	query := c.r.URL.Query()
	number := func(name string, otherwise, most int) (int, error) {
		if !query.Has(name) {
			return otherwise, nil
		}
		n, err := strconv.Atoi(query.Get(name))
		if err != nil || n < 1 {
			return 0, invalid(name, "Must be greater than or equal to 1.")
		}
		return min(n, most), nil
	}
	page, err := number("page", 1, 1<<30)
	if err != nil {
		return nil, err
	}
	per, err := number("per_page", 25, 50)
	if err != nil {
		return nil, err
	}
	last := max(1, (len(rows)+per-1)/per)
	meta := map[string]any{"page": page, "per_page": per, "last_page": last, "total_entries": len(rows),
		"previous_page": nil, "next_page": nil}
	var links []string
	link := func(rel string, to int) {
		query.Set("page", strconv.Itoa(to))
		links = append(links, fmt.Sprintf(`<http://%s%s?%s>; rel=%s`, c.r.Host, c.r.URL.Path, query.Encode(),
			rel))
	}
	if page > 1 {
		meta["previous_page"] = page - 1
		link("prev", page-1)
	}
	if page < last {
		meta["next_page"] = page + 1
		link("next", page+1)
	}
	link("last", last)
	c.header.Set("Link", strings.Join(links, ", "))
	from := min((page-1)*per, len(rows))
	return map[string]any{plural: rows[from:min(from+per, len(rows))],
		"meta": map[string]any{"pagination": meta}}, nil
}

// nextAddress returns an address of a prefix after another one that is not used.
func nextAddress(within netip.Prefix, after netip.Addr, used func(netip.Addr) bool) (netip.Addr, bool) {
	next := after
	for range 1 << min(16, 32-within.Bits()) {
		if next = next.Next(); !within.Contains(next) || !within.Contains(next.Next()) {
			next = within.Masked().Addr().Next()
		}
		if !used(next) {
			return next, true
		}
	}
	return netip.Addr{}, false
}
