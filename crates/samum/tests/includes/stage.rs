//! A server whose site has pages with directives, programs and internal files.

use std::path::Path;

use testkit::Tree;

pub(crate) use crate::common::on_both_drivers;
pub(crate) use crate::common::stage::{Stage, script};

/// The error message of pages.
pub(crate) const ERRMSG: &str = "[an error occurred while processing the directive]";

/// A directory with pages in `www`, internal files in `inner` and programs in `cgi`.
pub(crate) fn tree() -> Tree {
    Tree::new().directory("www").directory("inner").directory("cgi")
}

/// Serves the tree.
pub(crate) fn serve(driver: &str, tree: &Tree) -> Stage {
    serve_with(driver, tree, &tree.path().join("www"), "")
}

/// The same with another directory at `/slow/`, and these keys of `[server]`.
pub(crate) fn serve_with(driver: &str, tree: &Tree, slow: &Path, keys: &str) -> Stage {
    let (root, slow) = (tree.path().display(), slow.display());
    let config = format!(
        "[server]\nthreads = 1\ndriver = '{driver}'\n{keys}\n\
         [[site]]\nlisten = ['127.0.0.1:0']\nincludes = true\n\
         [[site.route]]\nfiles = '{root}/www'\n\
         [[site.route]]\npath = '/slow/'\nfiles = '{slow}'\n\
         [[site.route]]\npath = '/as-it-is/'\nfiles = '{root}/www'\nincludes = false\n\
         [[site.route]]\npath = '/clean/'\nfiles = '{root}/www'\nclean-urls = true\n\
         [[site.route]]\npath = '/inner/'\nfiles = '{root}/inner'\ninternal = true\n\
         [[site.route]]\npath = '/closed/'\nfiles = '{root}/www'\nallow = ['192.0.2.1']\n\
         [[site.route]]\npath = '/tool/'\ncgi = '{root}/cgi'\n\
         [[site.route]]\npath = '/server/'\nproxy = 'unix:{root}/app.sock'\n\
         [[site.route]]\npath = '/script/'\n\
         fastcgi = {{ server = 'unix:{root}/php.sock', root = '/srv' }}\n\
         [[site.route]]\npath = '/mixed/'\nfiles = '{root}/www'\n\
         fastcgi = {{ server = 'unix:{root}/php.sock' }}\n\
         [[site.route]]\npath = '/back/'\nfiles = '{root}/inner'\nincludes = false\n\
         fallback = '/mixed/page.html'\n\
         [[site.route]]\npath = '/old'\nredirect = '/a'\n\
         [[site.route]]\npath = '/metrics'\nmetrics = true\n"
    );
    Stage::new(tree, &config)
}
