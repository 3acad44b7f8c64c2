# The C library as others link it: libtilepack.a, and libtilepack.so with a soname of the
# major version, which exports what tilepack.h declares and nothing else. Included by
# the Makefile.

VERSION := $(shell sed -n 's/^.define TILEPACK_VERSION "\(.*\)"/\1/p' src/pack/api/tilepack.h)
MAJOR   := $(firstword $(subst ., ,$(VERSION)))
SHARED   = $(BUILD)/libtilepack.so.$(VERSION)
LIBRARY  = $(BUILD)/libtilepack.a $(BUILD)/libtilepack.so $(BUILD)/tilepack.pc

$(SHARED): $(LIB_OBJ) src/pack/api/tilepack.map
	$(call say,LD,$@)$(CC) $(CFLAGS) $(LDFLAGS) -shared -Wl,-soname,libtilepack.so.$(MAJOR) \
	    -Wl,--version-script=src/pack/api/tilepack.map -Wl,-z,defs -o $@ $(LIB_OBJ) $(LDLIBS)

$(BUILD)/libtilepack.so: $(SHARED)
	@ln -sf libtilepack.so.$(VERSION) $(BUILD)/libtilepack.so.$(MAJOR)
	$(call say,LN,$@)ln -sf libtilepack.so.$(MAJOR) $@

# Libs.private: what a static link needs in addition. Looked at every time: it holds
# PREFIX, which may be another for `make install`.
$(BUILD)/tilepack.pc: FORCE
	@mkdir -p $(@D)
	@printf '%s\n' 'prefix=$(PREFIX)' 'libdir=$${prefix}/lib' 'includedir=$${prefix}/include' '' \
	    'Name: tilepack' 'Description: weights in the bytes that GPU kernels read' \
	    'Version: $(VERSION)' 'Libs: -L$${libdir} -ltilepack' \
	    'Libs.private: $(LDLIBS)' 'Cflags: -I$${includedir}' > $@.tmp
	@cmp -s $@.tmp $@ && rm $@.tmp || mv $@.tmp $@

library: $(LIBRARY)

install-library: library
	install -d $(DESTDIR)$(PREFIX)/include $(DESTDIR)$(PREFIX)/lib/pkgconfig \
	    $(DESTDIR)$(PREFIX)/share/man/man3
	install -m 644 src/pack/api/tilepack.h $(DESTDIR)$(PREFIX)/include/
	install -m 644 $(BUILD)/libtilepack.a $(DESTDIR)$(PREFIX)/lib/
	install -m 755 $(SHARED) $(DESTDIR)$(PREFIX)/lib/
	ln -sf libtilepack.so.$(VERSION) $(DESTDIR)$(PREFIX)/lib/libtilepack.so.$(MAJOR)
	ln -sf libtilepack.so.$(MAJOR) $(DESTDIR)$(PREFIX)/lib/libtilepack.so
	install -m 644 $(BUILD)/tilepack.pc $(DESTDIR)$(PREFIX)/lib/pkgconfig/
	install -m 644 man/tilepack.3 $(DESTDIR)$(PREFIX)/share/man/man3/

uninstall-library:
	rm -f $(DESTDIR)$(PREFIX)/include/tilepack.h $(DESTDIR)$(PREFIX)/share/man/man3/tilepack.3 \
	    $(DESTDIR)$(PREFIX)/lib/pkgconfig/tilepack.pc $(addprefix \
	    $(DESTDIR)$(PREFIX)/lib/libtilepack.,a so so.$(MAJOR) so.$(VERSION))

.PHONY: library install-library uninstall-library
