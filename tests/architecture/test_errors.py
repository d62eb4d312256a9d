"""Every failure a user can meet has a stable code, says what to do, and is documented."""

from flymq.model.errors import FlyMQError, all_errors


def test_every_error_has_a_code_of_its_own_and_a_hint():
    for code, error in all_errors().items():
        assert code == code.upper()
        if error is not FlyMQError:
            assert error.__doc__, code
            assert error.hint, code


def test_an_error_without_a_message_says_what_its_class_is_about():
    for error in all_errors().values():
        assert str(error())
