"""TLS by Python, on a server that wants a client certificate; what it takes is in the environment."""

import os
import unittest
from pathlib import Path

import redlatch
from scenario import URL, Scenario

CA, CERTIFICATE, KEY = (os.environ[f"REDLATCH_TEST_{what}"] for what in ("CA", "CERTIFICATE", "KEY"))
SECURE = URL.replace("redis://", "rediss://")


class Tls(Scenario):
    def test_a_client_with_its_certificate_is_let_in(self):
        for ca, certificate, key in (CA, CERTIFICATE, KEY), map(Path, (CA, CERTIFICATE, KEY)):
            files = (certificate, key)
            for url, tls in (SECURE, False), (SECURE, True), (URL, True):
                client = redlatch.Client(url, tls=tls, tls_ca_file=ca, tls_client_certificate_files=files)
                with client.lock("tls.py").acquire():
                    pass

    def test_one_without_is_told_so(self):
        with self.assertRaisesRegex(redlatch.ConnectionFailed, "wants a client certificate"):
            redlatch.Client(SECURE, tls_ca_file=CA).lock("tls.py").acquire()

    def test_a_server_of_another_authority_is_not_trusted(self):
        client = redlatch.Client(SECURE, tls_ca_file=CERTIFICATE)
        with self.assertRaisesRegex(redlatch.ConnectionFailed, "not trusted|not accepted"):
            client.lock("tls.py").acquire()

    def test_files_that_cannot_be_used_are_refused(self):
        for wrong in (
            {"tls_ca_file": "/nowhere/ca.pem"},
            {"tls_ca_file": KEY},
            {"tls_ca_file": "a\0b"},
            {"tls_client_certificate_files": (CERTIFICATE, "/nowhere/key.pem")},
            {"tls_client_certificate_files": (CERTIFICATE, CERTIFICATE)},
        ):
            with self.assertRaises(redlatch.InvalidArgument, msg=wrong):
                redlatch.Client(SECURE, **{"tls_ca_file": CA, **wrong})
        for wrong in ({"tls_client_certificate_files": CERTIFICATE}, {"tls_ca_file": 1}):
            with self.assertRaises(TypeError, msg=wrong):
                redlatch.Client(SECURE, **wrong)


if __name__ == "__main__":
    unittest.main()
