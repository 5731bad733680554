"""Another program to compare with: scikit-learn's naive Bayes, one label against the rest.

This file runs alone under the interpreter of the peer's own environment, where neither this package nor umpteen need
be; `umpteen.comparing.child` is there all the same.
"""

from __future__ import annotations

from umpteen.comparing.child import OneVsRest


class NaiveBayes(OneVsRest):
    package = "scikit-learn"
    packages = ("scikit-learn>=1.7", "numpy", "scipy")

    def train(self):
        import joblib
        from sklearn.multiclass import OneVsRestClassifier
        from sklearn.naive_bayes import MultinomialNB

        self.model.mkdir()
        classifier = OneVsRestClassifier(MultinomialNB(**self.params)).fit(self.X, self.Y)
        joblib.dump(classifier, self.model / "model.joblib")

    def load(self):
        import joblib

        self.classifier = joblib.load(self.model / "model.joblib")

    def scores(self, X):
        return self.classifier.predict_proba(X)
